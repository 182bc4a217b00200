"""`forebay overlap`: schedule communication under computation on a graph or a captured program."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.errors import BadInput, Exit
from forebay.cli.output import emit_json, say
from forebay.cli.overlap_programs import list_programs, schedule_program, write_text
from forebay.cli.plan import read_json

if TYPE_CHECKING:
    from jobs.core.overlap import Plan

POLICIES = ("serial", "round-robin", "exact", "bucketed")
_SHOWN = 12
_MOST_TILES = 64


@click.command("overlap")
@click.argument("graph", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option("--program", help="Capture this program: a built-in name, or module:function.")
@click.option("--list", "list_", is_flag=True, help="List the built-in programs.")
@click.option("--size", help="Of a built-in program: width=8192,heads=64,tokens=4096,... see docs/helix.md.")
@click.option("--tiles", default="auto", show_default=True, help="How many tiles of the batch, or auto.")
@click.option(
    "--cluster", default="a100x8", show_default=True, help="Device x devices of a node, -hdr or -ndr across."
)
@click.option("--memory-budget", type=float, help="Bytes that the plan of a program may not exceed.")
@click.option(
    "--slowdown", type=float, help="How much compute and collectives slow each other down, 0.2 = 20 %."
)
@click.option("--policy", type=click.Choice(POLICIES), default="bucketed", show_default=True)
@click.option("--chrome", type=click.Path(path_type=Path), help="Write a Chrome/Perfetto trace to this file.")
@click.option("--limit", type=click.IntRange(10, 3600), default=600, help="Seconds that a program may take.")
@click.option("--json", "as_json", is_flag=True, help="No summary on standard error.")
def command(
    graph: Path | None,
    program: str | None,
    list_: bool,
    size: str | None,
    tiles: str,
    cluster: str,
    memory_budget: float | None,
    slowdown: float | None,
    policy: str,
    chrome: Path | None,
    limit: int,
    as_json: bool,
) -> int:
    """Order a graph so that communication hides under computation.

    GRAPH is a JSON file (docs/helix.md describes it); - reads standard input. Or --program names a program
    that is captured, cut into tiles, scheduled for a cluster and checked on simulated ranks. The plan is
    printed as JSON on standard output. Exit code 1 and the smallest peak where the policy has no plan within
    the memory budget.
    """
    if list_:
        return list_programs(as_json)
    if program is not None:
        if graph is not None:
            raise BadInput("GRAPH and --program: give one of them")
        request = _request(program, size, tiles, cluster, memory_budget, slowdown, policy)
        return schedule_program(request, chrome, as_json, float(limit))
    if graph is None:
        raise BadInput("GRAPH or --program is required (--list shows the built-in programs)")
    return _schedule_file(graph, policy, chrome, as_json)


def _request(
    program: str,
    size: str | None,
    tiles: str,
    cluster: str,
    budget: float | None,
    slowdown: float | None,
    policy: str,
) -> dict[str, Any]:
    from jobs.core.overlap.builtin import BUILT_IN_PROGRAMS, is_reference
    from jobs.core.overlap.clusters import read_cluster
    from jobs.core.overlap.errors import UnknownCluster

    if not is_reference(program):
        names = ", ".join(BUILT_IN_PROGRAMS)
        raise BadInput(f"--program: {program!r} is neither built in ({names}) nor module:function")
    if tiles != "auto" and not (tiles.isascii() and tiles.isdigit() and 1 <= int(tiles) <= _MOST_TILES):
        raise BadInput(f"--tiles: {tiles!r} is neither auto nor a whole number from 1 to {_MOST_TILES}")
    if budget is not None and not 0 <= budget < float("inf"):
        raise BadInput("--memory-budget: a number of bytes from 0 up is required")
    if slowdown is not None and not 0 <= slowdown <= 100:
        raise BadInput("--slowdown: a number from 0 to 100 is required")
    try:
        read_cluster(cluster)
    except UnknownCluster as error:
        raise BadInput(f"--cluster: {error}") from None
    return {
        "program": program,
        "size": None if size is None else _size(size, program in BUILT_IN_PROGRAMS),
        "tiles": None if tiles == "auto" else int(tiles),
        "cluster": cluster,
        "policy": policy,
        "memory_budget": budget,
        "slowdown": [slowdown or 0.0] * 2,
    }


def _size(text: str, built_in: bool) -> dict[str, int]:
    """`width=8192,heads=64` as numbers."""
    from jobs.core.overlap.builtin import SIZE_LIMITS, size_faults

    if not built_in:
        raise BadInput("--size: is for built-in programs; a program of your own sets its sizes itself")
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not (value.isascii() and value.isdigit() and len(value) < 12):
            raise BadInput(
                f"--size: {part.strip()[:60]!r} is no NAME=NUMBER; the names are {', '.join(SIZE_LIMITS)}"
            )
        found[name] = int(value)
    faults = size_faults(found)
    if faults:
        raise BadInput(f"--size: {faults[0]}")
    return found


def _schedule_file(graph: Path, policy: str, chrome: Path | None, as_json: bool) -> int:
    from jobs.core.overlap import (
        MalformedGraph,
        OverBudget,
        chrome_trace,
        make_plan,
        plan_document,
        read_graph,
    )

    try:
        plan = make_plan(read_graph(read_json(graph)), policy)
    except MalformedGraph as error:
        raise BadInput(f"{graph}: {error}") from None
    except OverBudget as error:
        emit_json({"error": str(error), "smallest_peak_bytes": error.smallest_peak_bytes})
        if not as_json:
            say(f"no plan: {error}")
        return Exit.FAILED
    if chrome is not None:
        write_text(chrome, json.dumps(chrome_trace(plan.graph, plan.chosen.steps), allow_nan=False))
    document = plan_document(plan)
    emit_json(document)
    if not as_json:
        say(summary(plan, document["exposed_comm"], document["lower_bound"]))
        for decision in document["decisions"][:_SHOWN]:
            node = f"{decision['node']}: " if decision["node"] else ""
            say(f"  {node}{decision['action']}: {decision['reason']}")
        if len(document["decisions"]) > _SHOWN:
            say(f"  and {len(document['decisions']) - _SHOWN} more decisions")
    return Exit.SUCCESS


def summary(plan: "Plan", exposed_s: float, lower_bound_s: float) -> str:
    """The plan in one line for people."""
    before, now = plan.given.makespan_s, plan.chosen.makespan_s
    gain = f", {before / now:.3g}x" if now > 0 else ""
    above = f"{now / lower_bound_s - 1:.1%} above the bound" if lower_bound_s > 0 else "no work"
    return (
        f"{plan.policy}: makespan {now:.6g} (given order {before:.6g}{gain}); {above};"
        f" exposed communication {exposed_s:.6g}; peak {plan.chosen.peak_bytes:g} bytes"
    )
