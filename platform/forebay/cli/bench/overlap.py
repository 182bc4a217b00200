"""`forebay bench overlap`: orders against each other, the bound and the optimum, and how long they take."""

from typing import Any

import click

from forebay.cli.bench import report

REAL = "two gloo processes over an emulated link"


@click.command(name="overlap")
@report.options(rounds=5, quick_rounds=3)
def command(as_json: bool, quick: bool, rounds: int) -> None:
    """Makespans of the policies (simulated), time to schedule and real runs (measured).

    Round robin and `bucketed` against the exact optimum on random chains, the chain of the published table,
    10,000 nodes, a what-if answer for 1,000 nodes; built-in programs in two tiles against one piece; our
    orders against Inductor's overlap pass on the same graphs; the simulator against two gloo processes.
    """
    from forebay.cli.bench import overlap_baselines as baselines
    from forebay.cli.bench import overlap_cases as cases
    from forebay.cli.bench import overlap_programs as programs

    captures = programs.Captures()
    figures: dict[str, Any] = {
        "chains": cases.random_chains(5 if quick else 20),
        "table": cases.published_chain(),
        "speed": cases.speed(rounds),
    }
    figures["programs, simulated"] = programs.simulated_gains(captures)
    figures["orders of one graph, simulated"] = baselines.orders_compared(captures)
    figures["inference memory, simulated"] = programs.simulated_memory(captures)
    figures[REAL] = programs.measured_runs(max(3, rounds))
    figures["estimates against runs"] = programs.agreement(figures[REAL])
    figures["single operators on this machine"] = programs.calibration()
    report.show("overlap", rounds, quick, as_json, figures, [*_lines(figures), *_warning(figures)])


def _lines(figures: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines: list[str] = []
    for name, rows in figures.items():
        header = tuple(rows[0])
        lines += ["", name, *report.table(header, [tuple(row.values()) for row in rows])]
    return lines[1:]


def _warning(figures: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Times of a machine that does something else besides are no measurement."""
    told = figures["estimates against runs"][0]
    if told["quiet"] is not False:
        return []
    share = f"{told['other_load']:.0%}"
    return [
        "",
        f"NOT QUIET: other programs used {share} of the processors during the real runs; repeat them.",
    ]
