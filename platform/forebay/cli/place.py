"""`forebay place`: hand out shared devices to pods until they are fragmented, under a placement policy."""

from pathlib import Path

import click

from forebay.cli.errors import BadInput
from forebay.cli.output import emit_json


@click.command("place")
@click.option("--pods", required=True, help="CSV: cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.")
@click.option("--nodes", required=True, help="CSV: sn, cpu_milli, memory_mib, gpu, model.")
@click.option("--policy", required=True, help="random, bestfit, dotprod, gpu-packing, gpu-clustering or fgd.")
@click.option("--load", type=float, default=1.3, show_default=True, help="Arrived requests over capacity.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(pods: str, nodes: str, policy: str, load: float, seed: int, as_json: bool) -> None:
    """Simulate GPU placement and fragmentation on a trace of pods.

    The same arrivals for every policy at one seed; a pod that does not fit is dropped.
    """
    from cluster.core.errors import ClusterError, UnknownPolicy
    from cluster.core.placement.replay import RULES, replay
    from cluster.core.traces.pods import read_pod_nodes, read_pods

    if seed < 0:
        raise BadInput(f"seed: {seed} is negative")
    try:
        if policy not in RULES:
            raise UnknownPolicy(policy, list(RULES))
        result = replay(read_pods(Path(pods)), read_pod_nodes(Path(nodes)), policy, load=load, seed=seed)
    except ClusterError as error:
        raise BadInput(str(error)) from None
    document = {**result.figures(), "policy": policy, "load": load, "seed": seed}
    if as_json:
        emit_json(document)
        return
    for mark, share in result.allocation.items():
        click.echo(f"{float(mark):4.0%} arrived  {share:7.2%} of the devices handed out")
    click.echo(f"{result.arrived} pods arrived, {result.failed} found no place ({result.wall_s:.1f} s)")
