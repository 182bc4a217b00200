"""`forebay schedule`: simulate a scheduling policy on a trace of jobs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.errors import BadInput
from forebay.cli.output import emit_json, say

if TYPE_CHECKING:
    from cluster.core.simulator.clock import PreemptionCost
    from cluster.core.traces import NodeSpec

TIME_UNITS = ("seconds", "minutes", "hours", "milliseconds")


@click.command("schedule")
@click.option("--trace", required=True, help="CSV with a header, gzip allowed.")
@click.option(
    "--policy",
    required=True,
    help="fifo, fifo-skip, backfill, sjf, srtf, las, deadline and others; see --list.",
)
@click.option("--gpus", type=int, help="Devices of the cluster, on even nodes.")
@click.option("--gpus-per-node", type=int, default=8, show_default=True)
@click.option("--nodes", help="CSV with the columns node, gpus and, where present, type; instead of --gpus.")
@click.option("--placement", default="consolidated", show_default=True, help="consolidated or relaxed.")
@click.option(
    "--preemption-cost",
    default="0",
    show_default=True,
    help="Seconds a stop adds, or `helios` (7, 30 or 60 by size).",
)
@click.option("--columns", default="", help="Our names to the file's: num_gpus=num_gpu,submit_s=submit_time.")
@click.option("--time-unit", type=click.Choice(TIME_UNITS), default="seconds", show_default=True)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, option, asked: _list_policies(context) if asked else None,
    help="Name the policies and stop.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(
    trace: str,
    policy: str,
    gpus: int | None,
    gpus_per_node: int,
    nodes: str | None,
    placement: str,
    preemption_cost: str,
    columns: str,
    time_unit: str,
    as_json: bool,
) -> None:
    """Simulate a scheduling policy on a trace of jobs.

    At one instant all ends come first, then all arrivals, then one decision; ties by arrival, then row.
    """
    from cluster.core.errors import ClusterError
    from cluster.core.simulator.run import simulate
    from cluster.core.traces import read_jobs, repeated_ids

    try:
        cluster = _cluster(gpus, gpus_per_node, nodes)
        jobs = read_jobs(Path(trace), renames=_renames(columns), time_unit=time_unit)
        result = simulate(jobs, cluster, policy, placement=placement, cost=_cost(preemption_cost))
    except ClusterError as error:
        raise BadInput(str(error)) from None
    repeated = repeated_ids(jobs)
    warnings = (
        [f"job_id {repeated[0]!r} occurs more than once ({len(repeated)} such ids)"] if repeated else []
    )
    document = {
        **result.figures(),
        "policy": policy,
        "gpus": sum(node.devices for node in cluster),
        "warnings": warnings,
    }
    if as_json:
        emit_json(document)
    else:
        _tell(document)


def _cluster(gpus: int | None, per_node: int, nodes: str | None) -> "list[NodeSpec]":
    from cluster.core.traces import even_nodes, read_nodes

    if (gpus is None) == (nodes is None):
        raise BadInput("gpus: give either --gpus or --nodes")
    if nodes is not None:
        return read_nodes(Path(nodes))
    return even_nodes(gpus or 0, per_node)


def _renames(columns: str) -> dict[str, str]:
    from cluster.core.traces.jobs import COLUMNS

    renames: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in columns.split(","))):
        ours, _, theirs = (side.strip() for side in pair.partition("="))
        if ours not in COLUMNS or not theirs:
            raise BadInput(f"columns: {pair!r} is not ours=theirs with one of {', '.join(COLUMNS)}")
        if ours in renames:
            raise BadInput(f"columns: {ours} is given twice")
        renames[ours] = theirs
    return renames


def _cost(text: str) -> "PreemptionCost":
    import math

    from cluster.core.simulator.clock import checkpoint_cost

    if text == "helios":
        return checkpoint_cost
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BadInput(f"preemption-cost: {text!r} is neither a number of seconds from 0 nor `helios`")
    return lambda devices: seconds


def _list_policies(context: click.Context) -> None:
    from cluster.core.policies import ORDERED

    for name, build in ORDERED.items():
        click.echo(f"{name:13} {build(1).title}")
    context.exit()


def _tell(document: dict[str, Any]) -> None:
    for name, value in document.items():
        if name == "warnings":
            for warning in value:
                say(f"warning: {warning}")
            continue
        text = f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        click.echo(f"{name:20} {'-' if value is None else text}")
