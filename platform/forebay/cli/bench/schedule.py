"""`forebay bench schedule`: policies on whole traces against the reference figures, and how fast they are."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from forebay.cli.bench import report

TRACES_VARIABLE = "FOREBAY_TRACES"


@click.command(name="schedule")
@click.option("--traces", help=f"Folder of the public traces [${TRACES_VARIABLE}, then ../shared/traces].")
@report.options(rounds=3, quick_rounds=1)
def command(traces: str | None, as_json: bool, quick: bool, rounds: int) -> None:
    """Scheduling policies on whole traces: figures and speed."""
    from forebay.cli.bench import schedule_cases as cases

    folder = _trace_folder(traces)
    figures: dict[str, Any] = {
        "closed_forms": cases.closed_forms(),
        "live_decision": cases.live_decision(rounds),
    }
    warnings: list[str] = []
    parts: dict[str, Callable[[Path], Any]] = {
        "policies": lambda at: cases.policy_table(at, rounds, quick=quick),
        "deadlines": cases.deadline_table,
        "placement": lambda at: cases.placement_table(at, seeds=1 if quick else 10),
        "scale": cases.scale,
        "heterogeneous": lambda at: cases.heterogeneous(at, quick=quick),
        "sharing": cases.sharing,
    }
    for name, measure in parts.items():
        if folder is None:
            warnings.append(f"{name} is left out: no traces (--traces or {TRACES_VARIABLE})")
        else:
            figures[name] = measure(folder)
    report.show(
        "schedule", rounds, quick, as_json, {**figures, "warnings": warnings}, _lines(figures, warnings)
    )


def _trace_folder(asked: str | None) -> Path | None:
    for place in (asked, os.environ.get(TRACES_VARIABLE), "../shared/traces"):
        if place and (Path(place) / "philly_2017-10-09_7d.csv.gz").is_file():
            return Path(place)
    return None


def _lines(figures: dict[str, Any], warnings: list[str]) -> list[str]:
    lines: list[str] = []
    for name, rows in figures.items():
        lines += ["", name]
        rows = rows if isinstance(rows, list) else [rows]
        header = tuple(rows[0])
        lines += report.table(header, [tuple(row.get(column, "-") for column in header) for row in rows])
    return lines + [f"warning: {warning}" for warning in warnings]
