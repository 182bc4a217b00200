"""A program from capture to a verified plan, as the document of `forebay overlap --program`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.core.overlap.assembly import WorkGraph, assemble
from jobs.core.overlap.choice import Choice, choose
from jobs.core.overlap.clusters import Placement, read_cluster
from jobs.core.overlap.decisions import Decision
from jobs.core.overlap.documents import plan_document
from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.graph import Graph
from jobs.core.overlap.operations import BARRIER, COLLECTIVE, RANDOM, CapturedProgram
from jobs.core.overlap.planner import make_plan
from jobs.core.overlap.program import Program
from jobs.core.overlap.questions import compare_policies
from jobs.core.overlap.rewriting import plan_digests, reorder
from jobs.core.overlap.tiling import TiledProgram, tile
from jobs.core.overlap.trace import chrome_trace
from jobs.core.overlap.work import WorkKind
from workers.trainer.overlap.capture import Captured, capture_program
from workers.trainer.overlap.conversion import aliases_of, check_shapes, module_of, propagate_shapes
from workers.trainer.overlap.loading import load_program
from workers.trainer.overlap.ranks import RanksDisagree
from workers.trainer.overlap.verification import Verification, verify
from workers.trainer.overlap.worlds import world_size

TILES_TRIED = (1, 2, 3, 4)
MOST_TILES = 64
# Rank runs that fit into a minute or so and two gigabytes here.
_LARGEST_FLOPS = 3e11
_LARGEST_BYTES = 2e9
_MOST_RANKS = 16
_LABELS = 60_000


@dataclass(frozen=True)
class Request:
    """What is asked: as the options of the command line.

    Attributes:
        size: of a built-in program, where it differs from its own.
        tiles: None to choose by simulation.
        slowdown: (compute, comm), see the graph format.
        variants: also tile for every number of `TILES_TRIED`, so that a page can ask what-if questions.
    """

    program: str
    size: Mapping[str, int] | None = None
    tiles: int | None = None
    cluster: str | Mapping[str, Any] = "a100x8"
    policy: str = "bucketed"
    memory_budget: float | None = None
    slowdown: tuple[float, float] = (0.0, 0.0)
    variants: bool = False


@dataclass
class _Study:
    request: Request
    program: Program
    placement: Placement
    captured: Captured
    tiled: dict[int, TiledProgram] = field(default_factory=dict)
    works: dict[int, WorkGraph] = field(default_factory=dict)
    untiled: tuple[tuple[str, str], ...] = ()
    warnings: list[str] = field(default_factory=list)

    def graph(self, tiles: int) -> Graph:
        compute, comm = self.request.slowdown
        budget = self.request.memory_budget
        return self.works[tiles].on(
            self.placement.cluster, budget_bytes=budget, compute_slowdown=compute, comm_slowdown=comm
        )


def run_study(request: Request, program: Program | None = None) -> dict[str, Any]:
    """Capture, tile, choose, plan and verify.

    Args:
        program: instead of the one that the request names.

    Raises:
        ProgramRefused, RanksDisagree, UnknownCluster: with the operator or field and the reason.
        OverBudget: no plan fits.
    """
    placement = read_cluster(request.cluster)
    loaded = program or load_program(request.program, placement, request.size)
    study = _Study(request, loaded, placement, capture_program(loaded))
    _cut(study)
    choice, verification = _planned(study)
    return _document(study, choice, verification)


def _cut(study: _Study) -> None:
    """The program in every number of tiles that is asked for; what cannot be tiled stays whole."""
    wanted = study.request.tiles
    if not any(COLLECTIVE in operation.traits for operation in study.captured.program.operations):
        study.untiled = (
            ("program", "it does not communicate, so there is nothing to hide under computation"),
        )
        wanted, study.request = 1, replace(study.request, variants=False)
    numbers = {
        1,
        *(TILES_TRIED if wanted is None or study.request.variants else ()),
        *([wanted] if wanted else []),
    }
    for number in sorted(numbers):
        made = tile(study.captured.program, study.captured.batch_dims, number)
        if number > 1:
            study.untiled = made.untiled
        if made.tiles == number:
            try:
                study.works[number] = _assembled(study.captured, made)
                study.tiled[number] = made
            except ProgramRefused as error:
                if number == 1:
                    raise
                study.untiled = (*study.untiled, ("program", str(error)))


def _assembled(captured: Captured, made: TiledProgram) -> WorkGraph:
    module = captured.module
    if made.tiles > 1:
        module = module_of(made.program, captured.module)
        propagate_shapes(module)
        check_shapes(made.program, module)
    return assemble(made.program, made.sizes, captured.ranks_of, aliases_of(module))


def _planned(study: _Study) -> tuple[Choice, Verification | None]:
    """Plan and verify; a tiling whose numbers are wrong is given up, and the program scheduled as it is."""
    while True:
        graphs = {number: study.graph(number) for number in study.works}
        asked = study.request.tiles
        wanted = asked if asked in graphs else (1 if asked is not None else None)
        choice = choose(graphs, study.request.policy, wanted, _LABELS)
        verification = _verified(study, choice)
        if verification is None or verification.passed or choice.tiles == 1:
            return choice, verification
        reason = f"tiles differ from the whole by {verification.max_rel_error:.2g} when run on all ranks"
        study.untiled = (*study.untiled, ("program", reason))
        for number in [number for number in study.works if number > 1]:
            del study.works[number], study.tiled[number]


def _verified(study: _Study, choice: Choice) -> Verification | None:
    order, buckets = _order(choice)
    small = study.program.rehearsal
    if small is None:
        reason = _too_large(study)
        if reason is None:
            return verify(study.program, choice.tiles, order, buckets, first=study.captured)
        study.warnings.append(f"not executed: {reason}; give the program a rehearsal of a smaller size")
        return None
    rehearsal = small()
    captured = study.captured if rehearsal is study.program else capture_program(rehearsal)
    made = tile(captured.program, captured.batch_dims, choice.tiles)
    names = {operation.name for operation in made.program.operations}
    if names != {operation.name for operation in study.tiled[choice.tiles].program.operations}:
        # Fewer ranks, fewer hops: the same rewriting in an order of its own.
        graph = assemble(made.program, made.sizes, captured.ranks_of).on(study.placement.cluster)
        plan = make_plan(graph, "round-robin")
        order, buckets = [graph.nodes[m].name for step in plan.chosen.steps for m in step], []
    return verify(rehearsal, choice.tiles, order, buckets, first=captured, rehearsal=True)


def _order(choice: Choice) -> tuple[list[str], list[list[str]]]:
    steps, nodes = choice.plan.chosen.steps, choice.plan.graph.nodes
    names = [[nodes[member].name for member in step] for step in steps]
    return [name for step in names for name in step], [step for step in names if len(step) > 1]


def _too_large(study: _Study) -> str | None:
    works, ranks = study.works[1], world_size(study.program.groups)
    flops = sum(2.0 * w.batch * w.rows * w.columns * w.inner + w.flops for w in works.works)
    held = ranks * (works.base_bytes + sum(n.size_bytes for n in works.nodes if n.kind.value == "comm"))
    if ranks > _MOST_RANKS:
        return f"{ranks} ranks are too many for one process"
    if flops * ranks > _LARGEST_FLOPS:
        return f"{flops * ranks:.2g} floating-point operations on all ranks are too many for this check"
    return f"{held:.2g} bytes on all ranks are too many for this check" if held > _LARGEST_BYTES else None


def _document(study: _Study, choice: Choice, verification: Verification | None) -> dict[str, Any]:
    plan = choice.plan
    document = plan_document(plan)
    made = study.tiled[choice.tiles]
    order, buckets = _order(choice)
    whole = make_plan(study.graph(1), "serial") if study.request.memory_budget is None else None
    unknown = study.works[choice.tiles].unknown
    if unknown:
        named = ", ".join(unknown[:5])
        study.warnings.append(f"{len(unknown)} operators have only a default cost, as memory-bound: {named}")
    document |= {
        "program": study.request.program,
        "cluster": study.placement.cluster.name,
        "simulated": True,
        "tiles": choice.tiles,
        "tile_sizes": list(made.sizes),
        "untiled": [{"node": node, "reason": reason} for node, reason in study.untiled],
        "untiled_makespan": whole.given.makespan_s if whole else None,
        "untiled_peak_bytes": whole.given.peak_bytes if whole else None,
        "base_bytes": study.works[1].base_bytes,
        "verification": None if verification is None else verification.to_json(),
        "alternatives": choice.alternatives,
        "estimates": {
            "collectives": sum(w.kind is WorkKind.COLLECTIVE for w in study.works[choice.tiles].works),
            "unknown": unknown,
        },
        "digests": plan_digests(reorder(made.program, order, buckets), study.captured.program),
        "decisions": [*choice.decisions, *_barriers(made.program), *document["decisions"]],
        "warnings": study.warnings,
        "trace": chrome_trace(plan.graph, plan.chosen.steps),
        "policies": _policies(study, choice),
        "graphs": {str(number): work.to_json() for number, work in study.works.items()},
    }
    return document


def _policies(study: _Study, choice: Choice) -> list[dict[str, Any]] | None:
    """Every policy on the chosen tiles, for the page."""
    return compare_policies(choice.plan.graph, _LABELS) if study.request.variants else None


def _barriers(program: CapturedProgram) -> list[Decision]:
    """Operators that nothing was moved across."""
    why = {
        BARRIER: "nothing moves across {}: it is read on the host, or its effects are not known",
        RANDOM: "random numbers are drawn in the program's order: nothing moves across {}",
    }
    return [
        {"node": operation.name, "action": "barrier", "reason": why[trait].format(operation.target)}
        for operation in program.operations
        for trait in (BARRIER, RANDOM)
        if trait in operation.traits
    ]


__all__ = ["MOST_TILES", "RanksDisagree", "Request", "run_study"]
