"""Plays of a queue as rows of a table, and their distributions drawn as strips on one axis."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 300.0
LEAST_S = 1.0


def play_row(name: str, play: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tables show of a play; everything in it is simulated."""
    plain = ("mean_wait_s", "mean_jct_s", "makespan_s", "started", "evictions", "utilisation", "fairness")
    return {
        "name": name,
        **{key: play.get(key) for key in plain},
        "stranded": len(play.get("stranded", ())),
        "wait": play["wait_s"],
        "jct": play["jct_s"],
    }


def with_strips(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each row strips of its distributions, all on the same logarithmic axis of seconds."""
    most = max((row[key].get("max") or LEAST_S for row in rows for key in ("wait", "jct")), default=LEAST_S)
    top = math.log10(max(most, 10 * LEAST_S))

    def at(seconds: float | None) -> float | None:
        if seconds is None:
            return None
        return round(WIDTH * max(0.0, math.log10(max(seconds, LEAST_S))) / top, 1)

    return [{**row, **{f"{key}_strip": _strip(row[key], at) for key in ("wait", "jct")}} for row in rows]


def _strip(quantiles: Mapping[str, float | None], at: Any) -> dict[str, float] | None:
    marks = {name: at(quantiles.get(name)) for name in ("p10", "p25", "p50", "p75", "p90", "p99")}
    if any(value is None for value in marks.values()):
        return None
    return {**marks, "line": marks["p90"] - marks["p10"], "box": max(1.0, marks["p75"] - marks["p25"])}
