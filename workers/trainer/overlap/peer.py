"""`python -m workers.trainer.overlap.peer REQUEST ANSWER`: one rank of a real run; started by peers.py."""

import gc
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from jobs.core.overlap.assembly import WorkGraph, assemble
from jobs.core.overlap.clusters import read_cluster
from jobs.core.overlap.graph import Graph, Kind, Node, Steps
from jobs.core.overlap.memory import peak_bytes
from jobs.core.overlap.operations import COLLECTIVE, CapturedProgram
from jobs.core.overlap.planner import Plan, make_plan
from jobs.core.overlap.program import Program
from jobs.core.overlap.rewriting import plan_digests, reorder
from jobs.core.overlap.simulator import makespan_s
from jobs.core.overlap.streams import TileStreams, random_turns
from jobs.core.overlap.tiling import tile
from workers.trainer.overlap.agreement import agree
from workers.trainer.overlap.calibration import calibrate_device, calibrate_messages
from workers.trainer.overlap.capture import Captured, capture_program
from workers.trainer.overlap.conversion import aliases_of, check_shapes, module_of, propagate_shapes
from workers.trainer.overlap.link import LinkRun
from workers.trainer.overlap.loading import load_program
from workers.trainer.overlap.machine_load import MachineLoad
from workers.trainer.overlap.verification import bitwise_equal, rank_values, relative_error
from workers.trainer.overlap.worlds import register_groups, world_size


def program_for(request: Mapping[str, Any]) -> Program:
    """A built-in program at its small size for so many processes, or one's own."""
    from workers.trainer.overlap.programs.catalogue import BUILT_IN

    if request["program"] in BUILT_IN:
        one = BUILT_IN[request["program"]]
        return one.sized(int(request["world"]), **request.get("size", {}))
    return load_program(request["program"], read_cluster("a100x8"))


def join(request: Mapping[str, Any], program: Program) -> None:
    """Become a rank of a real gloo world."""
    store = dist.FileStore(str(request["store"]), int(request["world"]))
    rank, world = int(request["rank"]), int(request["world"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    register_groups(program.groups, world)


def planned(
    captured: Captured, tiles: int, policy: str
) -> tuple[CapturedProgram, WorkGraph, Plan, CapturedProgram]:
    """The program in tiles, its graph, the plan, and the program in the plan's order."""
    made = tile(captured.program, captured.batch_dims, tiles)
    module = module_of(made.program, captured.module)
    if made.tiles > 1:
        propagate_shapes(module)
        check_shapes(made.program, module)
    else:
        module = captured.module
    work = assemble(made.program, made.sizes, captured.ranks_of, aliases_of(module))
    plan = make_plan(work.on(read_cluster("a100x8").cluster), policy, 0)
    return made.program, work, plan, _ordered(made.program, plan.graph, plan.chosen.steps)


def _ordered(program: CapturedProgram, graph: Graph, steps: Steps) -> CapturedProgram:
    named = [[graph.nodes[m].name for m in step] for step in steps]
    return reorder(
        program, [name for step in named for name in step], [step for step in named if len(step) > 1]
    )


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run several orders over an emulated link, and simulate each from the times of single operators.

    Outputs are compared: tiles with the program in one piece, every order with the tiles one by one. In every
    round the operators are timed once in the program's order and each order runs once, another one first each
    time: what else the machine does in the meantime meets all of them alike.
    """
    program = program_for(request)
    if world_size(program.groups) != int(request["world"]):
        raise SystemExit(f"the program has {world_size(program.groups)} ranks, not {request['world']}")
    captured = capture_program(program, int(request["rank"]))
    made = tile(captured.program, captured.batch_dims, int(request["tiles"]))
    _, work, _, _ = planned(captured, int(request["tiles"]), "serial")
    join(request, program)
    link_s = _link_times(work, float(request["alpha_s"]), float(request["bytes_per_s"]))
    bench = _Bench(captured, rank_values(program, int(request["rank"]), 0), link_s)
    timed = _Timed(work, link_s, float(request["alpha_s"]))
    first = timed.graph(_shared(_medians([bench.run(made.program).seconds for _ in range(3)][1:])))
    orders = {policy: make_plan(first, policy, 0).chosen.steps for policy in request["policies"]}
    orders |= {f"random {n}": random_turns(TileStreams(first), Random(n)) for n in range(request["random"])}
    moved = {name: _ordered(made.program, first, steps) for name, steps in orders.items()}
    for name, steps in orders.items():
        agree(plan_digests(moved[name], captured.program))
        merged = [step for step in steps if len(step) > 1]
        link_s |= {f"{first.nodes[step[0]].name}_merged": first.bucket_time_s(step) for step in merged}
    whole, tiles = bench.plain(captured.program), bench.plain(made.program)
    weighed = {name: bench.run(one, weighing=True) for name, one in moved.items()}
    found, profiles, other = _rounds(bench, made.program, moved, int(request["rounds"]))
    graph = timed.graph(_shared(_medians(profiles)))
    rows = [
        {
            "order": name,
            "messages": _messages(moved[name]),
            "estimated_s": makespan_s(graph, steps),
            "times_s": found[name],
            "estimated_peak_bytes": peak_bytes(graph, steps),
            "measured_peak_bytes": weighed[name].peak_bytes,
            "equals_serial": bitwise_equal(tiles, weighed[name].outcome),
        }
        for name, steps in orders.items()
    ]
    return {
        "rows": rows,
        "nodes": len(graph.nodes),
        "other_load": other,
        "max_rel_error": relative_error(whole, tiles),
    }


def _messages(program: CapturedProgram) -> int:
    return sum(COLLECTIVE in operation.traits for operation in program.operations)


def _rounds(
    bench: "_Bench", program: CapturedProgram, moved: Mapping[str, CapturedProgram], rounds: int
) -> tuple[dict[str, list[float]], list[dict[str, float]], float | None]:
    """Seconds of each order and of each operator, and what share of the processors others used."""
    names = list(moved)
    found: dict[str, list[float]] = {name: [] for name in names}
    profiles = []
    load = MachineLoad()
    for number in range(rounds):
        profiles.append(bench.run(program).seconds)
        start = number % len(names)
        for name in names[start:] + names[:start]:
            found[name].append(bench.run(moved[name]).makespan_s)
    ours: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(ours, load.own_s())
    return found, profiles, load.other_share(sum(ours))


@dataclass
class _Bench:
    """Runs orders of one program on this rank."""

    captured: Captured
    values: list[torch.Tensor]
    link_s: Mapping[str, float]

    def run(self, program: CapturedProgram, *, weighing: bool = False) -> LinkRun:
        module = module_of(program, self.captured.module)
        run = LinkRun(self.link_s, weighing)
        copies = [value.clone() for value in self.values]
        gc.collect()
        gc.disable()
        try:
            with torch.no_grad():
                run.outcome = [run.run(module, copies, dist.barrier), copies]
        finally:
            gc.enable()
        return run

    def plain(self, program: CapturedProgram) -> list[Any]:
        """Outputs, and what became of the inputs, with gloo as it is."""
        copies = [value.clone() for value in self.values]
        with torch.no_grad():
            return [module_of(program, self.captured.module)(*copies), copies]


@dataclass(frozen=True)
class _Timed:
    """The program's graph with times of the link and of operators as they were measured."""

    work: WorkGraph
    link_s: Mapping[str, float]
    alpha_s: float

    def graph(self, profile: Mapping[str, float]) -> Graph:
        nodes = tuple(self._node(node, profile) for node in self.work.nodes)
        return Graph(nodes, self.work.outputs, bucket_is_one_storage=False)

    def _node(self, node: Node, profile: Mapping[str, float]) -> Node:
        if node.kind is Kind.COMM:
            latency_s = self.alpha_s if node.merge else 0.0
            return replace(node, time_s=self.link_s[node.name], latency_s=latency_s)
        return replace(node, time_s=profile.get(node.name, 0.0)) if node.kind is Kind.COMPUTE else node


def _link_times(work: WorkGraph, alpha_s: float, bytes_per_s: float) -> dict[str, float]:
    return {
        node.name: alpha_s + of.moved_bytes / bytes_per_s
        for node, of in zip(work.nodes, work.works, strict=True)
        if node.kind is Kind.COMM
    }


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Median seconds of each operator."""
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _shared(profile: dict[str, float]) -> dict[str, float]:
    """The mean over the ranks, so that all of them make the same plan."""
    everybody: list[dict[str, float]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everybody, profile)
    return {name: sum(one[name] for one in everybody) / len(everybody) for name in profile}


def calibrate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit this machine's processor and its gloo messages."""
    rank, world = int(request["rank"]), int(request["world"])
    store = dist.FileStore(str(request["store"]), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    links, messages = calibrate_messages(world)
    # One rank after the other, so that they do not take the memory's bandwidth from each other.
    for turn in range(world):
        if turn == rank:
            cluster, samples = calibrate_device("cpu")
        dist.barrier()
    profile = {key: value for key, value in {**asdict(cluster), **links}.items() if key != "name"}
    return {"cluster": profile, "samples": [sample.row() for sample in (*samples, *messages)]}


def main(arguments: list[str]) -> int:
    """Run one rank and write what it found."""
    request = json.loads(arguments[0])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {"measure": measure, "calibrate": calibrate}[request["mode"]](request)
    dist.barrier()
    dist.destroy_process_group()
    Path(arguments[1]).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
