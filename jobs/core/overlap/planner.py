"""Choose an order: by policy, within the memory budget, and never slower than the given order."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from jobs.core.overlap.bounds import Bounds, bounds
from jobs.core.overlap.errors import OverBudget
from jobs.core.overlap.footprint import smallest_peak
from jobs.core.overlap.graph import Graph, Steps, given_order
from jobs.core.overlap.listing import list_orders
from jobs.core.overlap.memory import peak_bytes
from jobs.core.overlap.motion import launch_early_wait_late, merge_neighbours
from jobs.core.overlap.search import LABEL_LIMIT, LabelSearch
from jobs.core.overlap.simulator import ideal_times, makespan_s
from jobs.core.overlap.streams import TileStreams, round_robin, tile_by_tile

POLICIES = ("serial", "round-robin", "exact", "bucketed")

_TABLE_LIMIT = 4_000_000
_LARGE_GRAPH_NODES = 2_000
_BEAM_WORK = 100_000
_WIDEST_BEAM = 64
_MERGE_WORK = 1_000_000
_ROUNDING = 1e-9
_LEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Candidate:
    """An order and what the simulation says about it."""

    name: str
    steps: Steps
    makespan_s: float
    peak_bytes: float


@dataclass(frozen=True)
class Plan:
    """The chosen order.

    Attributes:
        exact: the order is proven to be the best interleaving of at most two tile streams.
        wanted: the policy's own order when another one had to be taken, with the reason in `fallback`.
    """

    graph: Graph
    policy: str
    chosen: Candidate
    given: Candidate
    bounds: Bounds
    exact: bool = False
    wanted: Candidate | None = None
    fallback: str | None = None


@dataclass
class Planner:
    """Candidates of one graph, each computed when a policy asks for it."""

    graph: Graph
    label_limit: int = LABEL_LIMIT

    def evaluate(self, name: str, steps: Steps) -> Candidate:
        return Candidate(name, steps, makespan_s(self.graph, steps), peak_bytes(self.graph, steps))

    def fits(self, candidate: Candidate) -> bool:
        return self.graph.budget_bytes is None or candidate.peak_bytes <= self.graph.budget_bytes

    @cached_property
    def tiles(self) -> TileStreams:
        return TileStreams(self.graph)

    @cached_property
    def searchable(self) -> bool:
        """Whether tables of streams and groups by nodes have a reasonable size."""
        tiles = {node.tile for node in self.graph.nodes}
        return (len(tiles) + len(self.graph.groups)) * len(self.graph.nodes) <= _TABLE_LIMIT

    @cached_property
    def given(self) -> Candidate:
        return self.evaluate("given order", given_order(self.graph))

    @cached_property
    def round_robin(self) -> Candidate:
        return self.evaluate("round-robin", round_robin(self.tiles)) if self.searchable else self.given

    @cached_property
    def tile_by_tile(self) -> Candidate:
        return self.evaluate("tile by tile", tile_by_tile(self.tiles)) if self.searchable else self.given

    @cached_property
    def least(self) -> Candidate | None:
        """The order with the smallest peak; only looked for when there is a budget."""
        if self.graph.budget_bytes is None or not self.searchable:
            return None
        steps = smallest_peak(self.tiles)
        return None if steps is None else self.evaluate("smallest peak", steps)

    @cached_property
    def partly_serial(self) -> list[Candidate]:
        """Round robin with the later streams held back: between round robin and one tile after the other."""
        if self.graph.budget_bytes is None or not self.searchable or len(self.tiles.streams) < 2:
            return []
        return [self.evaluate("partly serial", round_robin(self.tiles, lead)) for lead in _LEADS]

    def in_order(self) -> list[Candidate]:
        """Every simple candidate that keeps each tile in order."""
        found = [self.round_robin, self.given, *self.partly_serial, self.tile_by_tile]
        return [*found, self.least] if self.least is not None else found

    def fastest(self, candidates: list[Candidate]) -> Candidate | None:
        """The fastest that fits; of equal ones the first."""
        return min(filter(self.fits, candidates), key=lambda one: one.makespan_s, default=None)

    def leanest(self, candidates: list[Candidate]) -> Candidate | None:
        """The fastest that fits; of those that differ by rounding only, that with the smallest peak."""
        best = self.fastest(candidates)
        if best is None:
            return None
        most_s = best.makespan_s * (1 + _ROUNDING)
        if best.makespan_s <= self.given.makespan_s:
            most_s = min(most_s, self.given.makespan_s)
        equal = [one for one in candidates if self.fits(one) and one.makespan_s <= most_s]
        return min(equal, key=lambda one: (one.peak_bytes, one.makespan_s))


def make_plan(graph: Graph, policy: str, label_limit: int = LABEL_LIMIT) -> Plan:
    """Schedule a graph by one of `POLICIES`.

    Args:
        label_limit: how far `exact` and `bucketed` search; with 0 a narrow beam only, for an answer at once.

    Raises:
        OverBudget: no order that the policy knows fits into the budget.
    """
    planner = Planner(graph, label_limit)
    pick: Callable[[Planner], Plan] = {
        "serial": _serial,
        "round-robin": _round_robin,
        "exact": lambda of: _searched(of, "exact"),
        "bucketed": lambda of: _searched(of, "bucketed"),
    }[policy]
    return pick(planner)


def _plan(planner: Planner, policy: str, chosen: Candidate, *, exact: bool = False) -> Plan:
    limits = bounds(planner.graph, merging=policy == "bucketed")
    return Plan(planner.graph, policy, chosen, planner.given, limits, exact)


def _serial(planner: Planner) -> Plan:
    candidates = [planner.given]
    if not planner.fits(planner.given):
        candidates.append(planner.tile_by_tile)
    return _first_choice(planner, "serial", candidates)


def _round_robin(planner: Planner) -> Plan:
    wanted = planner.round_robin
    slower = planner.fits(planner.given) and wanted.makespan_s > planner.given.makespan_s
    if planner.fits(wanted) and not slower:
        return _plan(planner, "round-robin", wanted)
    return _first_choice(planner, "round-robin", planner.in_order())


def _first_choice(planner: Planner, policy: str, candidates: list[Candidate]) -> Plan:
    """The fastest candidate that fits, with the reason why the first one was not taken."""
    chosen = planner.fastest(candidates)
    if chosen is None:
        raise _over_budget(planner, candidates)
    plan = _plan(planner, policy, chosen)
    wanted = candidates[0]
    if chosen is wanted:
        return plan
    reason = "is slower" if planner.fits(wanted) else "is over the memory budget"
    return replace(plan, wanted=wanted, fallback=reason)


def _over_budget(planner: Planner, candidates: list[Candidate]) -> OverBudget:
    assert planner.graph.budget_bytes is not None
    return OverBudget(planner.graph.budget_bytes, min(one.peak_bytes for one in candidates))


def _searched(planner: Planner, policy: str) -> Plan:
    merging = policy == "bucketed"
    candidates = planner.in_order()
    lists: list[Candidate] = []
    if merging:
        early = launch_early_wait_late(planner.graph, planner.given.steps)
        candidates.append(planner.evaluate("launch early, wait late", early))
        lists = [planner.evaluate("list schedule", steps) for steps in list_orders(planner.graph)]
        candidates += lists
    exact = False
    # The narrow beam that is left for a large graph does not come near a list schedule.
    if planner.searchable and not (
        merging and len(planner.graph.nodes) > _LARGE_GRAPH_NODES and planner.fastest(candidates) in lists
    ):
        found, exact = _interleave(planner, candidates, merging)
        candidates = [*found, *candidates]
    chosen = planner.leanest(candidates) if merging else planner.fastest(candidates)
    if chosen is None:
        raise _over_budget(planner, candidates)
    faster = min(candidates, key=lambda one: one.makespan_s)
    if merging:
        chosen = _merge_more(planner, _loosened(planner, chosen))
    plan = _plan(planner, policy, chosen, exact=exact)
    if planner.fits(faster) or faster.makespan_s >= chosen.makespan_s:
        return plan
    return replace(plan, wanted=faster, fallback="is over the memory budget")


def _interleave(planner: Planner, candidates: list[Candidate], merging: bool) -> tuple[list[Candidate], bool]:
    """The label search; whether its outcome is proven."""
    graph = planner.graph
    merging = merging and any(graph.merge_key(index) for index in range(len(graph.nodes)))
    known = planner.fastest(candidates)
    upper_s = float("inf")
    if known is not None:
        upper_s = known.makespan_s if not graph.slowed else _ideal_s(graph, known.steps)
    # A narrow beam is cheap, and its makespan cuts most of the full search off.
    streams = len(planner.tiles.streams)
    width = _BEAM_WORK // max(1, len(graph.nodes) * streams**2)
    if not width:
        return [], False
    width = max(2, min(_WIDEST_BEAM, width))
    found = LabelSearch(planner.tiles, upper_s, merging, label_limit=0, least_width=width).run()
    orders = [found.steps] if found.steps is not None else []
    thorough = planner.label_limit > 0 and len(graph.nodes) <= _LARGE_GRAPH_NODES
    if not found.complete and streams <= 2 and thorough:
        if orders:
            upper_s = min(upper_s, _ideal_s(graph, orders[0]))
        found = LabelSearch(planner.tiles, upper_s, merging, planner.label_limit).run()
        orders += [found.steps] if found.steps is not None else []
    exact = found.complete and streams <= 2 and not graph.slowed
    return [planner.evaluate("label search", steps) for steps in reversed(orders)], exact


def _ideal_s(graph: Graph, steps: Steps) -> float:
    return max(ideal_times(graph, steps)[1], default=0.0)


def _loosened(planner: Planner, chosen: Candidate) -> Candidate:
    """Waits later and launches earlier than the order has them, where that gains."""
    if any(len(step) > 1 for step in chosen.steps):
        return chosen
    steps = launch_early_wait_late(planner.graph, chosen.steps)
    moved = planner.evaluate(f"{chosen.name}, waits late", steps)
    return planner.fastest([chosen, moved]) or chosen


def _merge_more(planner: Planner, chosen: Candidate) -> Candidate:
    """Merge pair after pair where that gains most, as long as the budget holds."""
    left = _MERGE_WORK // max(1, len(planner.graph.nodes))
    while left > 0:
        merged = merge_neighbours(planner.graph, chosen.steps)[:left]
        left -= len(merged)
        best = planner.fastest([planner.evaluate("merged", steps) for steps in merged])
        if best is None or best.makespan_s >= chosen.makespan_s:
            break
        chosen = best
    return chosen
