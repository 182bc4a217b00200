"""What the measurement of `forebay bench bubbles` says: pure functions of what was seen."""

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

from forebay.cli.bench import report
from forebay.cli.bench.bubbles_run import EQUAL_STEPS, GUEST_ALONE, MODES, Measured, Segment

DRAWS = 500
LIMITS = ("slowdown", "slowdown_high", "leak", "pause_p99_s")
NOISY_BUSY, NOISY_STEAL = 0.05, 0.02
GOALS = {
    "slowdown": 0.01,
    "slowdown_high": 0.02,
    "utilisation": 0.5,
    "leak": 0.02,
    "guest_over_bubble_share": 0.7,
    "pause_p99_s": 0.001,
}


def figures_of(measured: Measured) -> dict[str, Any]:
    """Every figure of the measurement."""
    rng = random.Random(0)
    by_mode = {mode: [s for s in measured.segments if s.mode == mode] for mode in [*MODES, GUEST_ALONE]}
    alone_rate = _rate(by_mode[GUEST_ALONE])
    share = bubble_share(by_mode["alone"])
    modes = {mode: _mode(by_mode[mode], by_mode["alone"], alone_rate, rng) for mode in MODES}
    found = {
        "main": {
            "iteration_s": _median_iteration(by_mode["alone"]),
            "bubble_share": share,
            "chunk_s": chunk_seconds(by_mode["alone"]),
            "losses_equal": _equal(measured.losses, measured.losses_alone),
            "compared_iterations": EQUAL_STEPS,
        },
        "guest": {
            "steps_per_s_alone": alone_rate,
            "metrics_equal": _equal(measured.guest_curve, measured.guest_curve_alone),
            "compared_epochs": len(measured.guest_curve.keys() & measured.guest_curve_alone.keys()),
        },
        "modes": modes,
        "resume_s": _worst(measured, "resume_s"),
        "cold_tax": cold_tax(by_mode["squeezer"], by_mode["alone"]),
        "noise": measured.noise,
        "quiet": measured.noise["busy"] < NOISY_BUSY and measured.noise["steal"] < NOISY_STEAL,
        "goals": GOALS,
    }
    found["met"] = goals_met(found)
    if not found["quiet"]:
        busy = f"{measured.noise['busy']:.0%} busy before the first process was started"
        found["warnings"] = [f"this machine is not quiet ({busy}): the figures say little"]
    return found


def _mode(own: list[Segment], alone: list[Segment], alone_rate: float, rng: random.Random) -> dict[str, Any]:
    waited_s = sum(t.waited_ns for s in own for t in s.board) / 1e9
    used_s = sum(t.used_ns for s in own for t in s.board) / 1e9
    cpu_s = sum(s.guest_cpu_s for s in own)
    rate = _rate(own)
    leaks = sorted(p.leaked_ns / 1e9 for s in own for passed in s.passed for p in passed[1:])
    return {
        "iteration_s": _median_iteration(own),
        "iterations": sum(len(_durations(s)) for s in own),
        **paired_slowdown(own, alone, rng),
        "utilisation": used_s / waited_s if waited_s else None,
        "leak": max(0.0, 1 - used_s / cpu_s) if cpu_s > 0.01 else None,
        "guest_steps_per_s": rate,
        "guest_relative": rate / alone_rate if alone_rate else None,
        "pause_p50_s": _rank(leaks, 0.5),
        "pause_p99_s": _rank(leaks, 0.99),
    }


def _durations(segment: Segment) -> list[float]:
    """Iteration times: from end to end of one rank, so that nothing between two iterations is lost."""
    found = []
    for rank in (0, 1):
        mine = sorted((e["step"], e["ended_s"]) for e in segment.iterations if e["plan_rank"] == rank)
        found += [b[1] - a[1] for a, b in zip(mine, mine[1:], strict=False) if b[0] == a[0] + 1]
    return found


def _median_iteration(segments: list[Segment]) -> float | None:
    durations = [seconds for segment in segments for seconds in _durations(segment)]
    return statistics.median(durations) if durations else None


def _rate(segments: list[Segment]) -> float:
    seconds = sum(segment.ended_s - segment.begun_s for segment in segments)
    return sum(segment.steps for segment in segments) / seconds if seconds else 0.0


def paired_slowdown(own: list[Segment], alone: list[Segment], rng: random.Random) -> dict[str, float | None]:
    """Median over rounds of the ratio of medians, minus one, and its 95 % bootstrap interval."""
    alone_by_round = {segment.round: _durations(segment) for segment in alone}
    pairs = [(_durations(segment), alone_by_round.get(segment.round, [])) for segment in own]
    pairs = [(mine, other) for mine, other in pairs if mine and other]
    if not pairs:
        return {"slowdown": None, "slowdown_low": None, "slowdown_high": None}

    def ratio(rows: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
        return statistics.median(statistics.median(a) / statistics.median(b) for a, b in rows) - 1

    def drawn() -> float:
        rows = rng.choices(pairs, k=len(pairs))
        return ratio([(rng.choices(a, k=len(a)), rng.choices(b, k=len(b))) for a, b in rows])

    draws = sorted(drawn() for _ in range(DRAWS))
    low, high = draws[math.floor(0.025 * DRAWS)], draws[math.ceil(0.975 * DRAWS) - 1]
    return {"slowdown": ratio(pairs), "slowdown_low": low, "slowdown_high": high}


def bubble_share(alone: list[Segment]) -> float | None:
    """Waiting over all time of the ranks, without guests."""
    seconds = sum((s.ended_s - s.begun_s) * len(s.board) for s in alone)
    return sum(t.waited_ns for s in alone for t in s.board) / 1e9 / seconds if seconds else None


def chunk_seconds(alone: list[Segment]) -> dict[str, list[float]] | None:
    """Median seconds of a forward and a backward per stage: what the simulation is fed with."""
    chunks = [c for s in alone for event in s.iterations for c in event["chunks"]]
    found = {
        kind: [
            statistics.median(
                [c["seconds"] for c in chunks if c["type"] == kind and c["stage"] == stage] or [0.0]
            )
            for stage in (0, 1)
        ]
        for kind in ("F", "B")
    }
    return found if all(value > 0 for values in found.values() for value in values) else None


def cold_tax(own: list[Segment], alone: list[Segment]) -> float | None:
    """How much longer the chunk right after a bubble takes where a guest had the bubble."""
    ours, theirs = _after_bubbles(own), _after_bubbles(alone)
    common = sorted(ours.keys() & theirs.keys())
    ratios = [statistics.median(ours[key]) / statistics.median(theirs[key]) for key in common]
    return statistics.median(ratios) - 1 if ratios else None


def _after_bubbles(segments: list[Segment], least_s: float = 0.002) -> dict[tuple[int, str], list[float]]:
    found: dict[tuple[int, str], list[float]] = {}
    for event in (event for segment in segments for event in segment.iterations):
        chunks = {f"{c['type']}{c['microbatch']}": c["seconds"] for c in event["chunks"]}
        for bubble in event["bubbles"]:
            if bubble["seconds"] > least_s and bubble["before"] in chunks:
                key = (event["plan_rank"], bubble["before"])
                found.setdefault(key, []).append(chunks[bubble["before"]])
    return found


def _equal(ours: dict[int, Any], alone: dict[int, Any]) -> bool | None:
    common = ours.keys() & alone.keys()
    return all(ours[key] == alone[key] for key in common) if common else None


def _worst(measured: Measured, name: str) -> dict[str, float] | None:
    found = [sample[name] for sample in measured.samples if sample.get(name)]
    return max(found, key=lambda row: row["p99"]) if found else None


def _rank(values: list[float], share: float) -> float | None:
    return values[math.ceil(share * len(values)) - 1] if values else None


def goals_met(found: dict[str, Any]) -> dict[str, bool | None]:
    """Which goals of the squeezer hold."""
    row, share = found["modes"]["squeezer"], found["main"]["bubble_share"]
    relative = row["guest_relative"]
    return {
        **{
            name: _below(row[name], GOALS[name])
            for name in ("slowdown", "slowdown_high", "leak", "pause_p99_s")
        },
        "utilisation": None if row["utilisation"] is None else row["utilisation"] >= GOALS["utilisation"],
        "guest_over_bubble_share": (
            relative / share >= GOALS["guest_over_bubble_share"] if relative is not None and share else None
        ),
        "losses_equal": found["main"]["losses_equal"],
        "metrics_equal": found["guest"]["metrics_equal"],
    }


def _below(value: float | None, limit: float) -> bool | None:
    return None if value is None else value <= limit


def lines_of(figures: dict[str, Any]) -> list[str]:
    """The table for people."""
    header = ("mode", "slowdown", "95 % interval", "used", "leak", "guest", "pause p99")
    rows = [
        (
            mode,
            _percent(row["slowdown"]),
            f"{_percent(row['slowdown_low'])} .. {_percent(row['slowdown_high'])}",
            _percent(row["utilisation"]),
            _percent(row["leak"]),
            _percent(row["guest_relative"]),
            "-" if row["pause_p99_s"] is None else f"{row['pause_p99_s'] * 1e3:.2f} ms",
        )
        for mode, row in figures["modes"].items()
    ]
    main, guest = figures["main"], figures["guest"]
    met = ", ".join(f"{name} {_word(held)}" for name, held in figures["met"].items())
    return [
        *figures.get("warnings", []),
        f"main job alone: {main['iteration_s'] or 0:.3g} s an iteration, "
        f"{_percent(main['bubble_share'])} bubbles; "
        f"guests alone: {guest['steps_per_s_alone']:.3g} steps/s",
        *report.table(header, rows),
        f"goals of the squeezer: {met}",
        f"chunk after a used bubble: {_percent(figures['cold_tax'])} longer",
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _word(held: bool | None) -> str:
    return "not measured" if held is None else "met" if held else "missed"
