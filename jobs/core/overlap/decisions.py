"""Why the plan is as it is: one entry for each decision and each collective that is not hidden."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from jobs.core.overlap.graph import Graph, Kind
from jobs.core.overlap.planner import Plan
from jobs.core.overlap.simulator import Timeline
from jobs.core.overlap.telling import bytes_told, seconds_told

_EXPLAINED = 100
_NODES_LOOKED_AT = 100_000
_NEGLIGIBLE = 1e-9


class Decision(TypedDict):
    """`node` is null for what concerns the whole plan."""

    node: str | None
    action: str
    reason: str


def explain(plan: Plan, timeline: Timeline) -> list[Decision]:
    """The decisions of a plan in the order: whole plan, buckets, collectives, dead collectives."""
    return [*_whole(plan), *_buckets(plan), *_exposed(plan, timeline), *_unused(plan.graph)]


def _whole(plan: Plan) -> list[Decision]:
    graph, chosen = plan.graph, plan.chosen
    found: list[Decision] = []
    if plan.wanted is not None:
        found.append(
            _decision(
                f"took {chosen.name}",
                f"{plan.wanted.name} {plan.fallback}: makespan {seconds_told(plan.wanted.makespan_s)},"
                f" peak {bytes_told(plan.wanted.peak_bytes)} against {seconds_told(chosen.makespan_s)} and"
                f" {bytes_told(chosen.peak_bytes)}",
            )
        )
    if not graph.groups:
        found.append(_decision("nothing to overlap", "the graph has no communication"))
    elif plan.policy == "serial" and plan.wanted is None:
        found.append(_decision("kept the given order", "that is what the serial policy does"))
    elif chosen.makespan_s == plan.given.makespan_s:
        found.append(_decision("no gain over the given order", "no order that was tried is faster"))
    else:
        gain = plan.given.makespan_s / chosen.makespan_s
        found.append(_decision(f"took {chosen.name}", f"{gain:.3g} times as fast as the given order"))
    if plan.exact:
        found.append(_decision("proven", "no interleaving of the tile streams is faster within the budget"))
    return found


def _buckets(plan: Plan) -> list[Decision]:
    found = []
    for step in plan.chosen.steps:
        if len(step) > 1:
            members = [plan.graph.nodes[member] for member in step]
            saved = sum(node.time_s for node in members) - plan.graph.bucket_time_s(step)
            names = ", ".join(node.name for node in members)
            found.append(
                _decision(
                    f"merged {names}",
                    f"saves {seconds_told(saved)} of stream time at no loss elsewhere",
                    members[0].name,
                )
            )
    return found


def _exposed(plan: Plan, timeline: Timeline) -> list[Decision]:
    """The collectives for which the compute stream stands still, the longest stalls first."""
    graph = plan.graph
    stalls: dict[int, float] = {}
    for index, comms in enumerate(graph.waits_for):
        stall = timeline.ends_s[index] - timeline.starts_s[index]
        if comms and stall > _NEGLIGIBLE * timeline.makespan_s:
            stalls[index] = stall
    worst = sorted(stalls, key=lambda wait: -stalls[wait])
    explained = max(10, min(_EXPLAINED, _NODES_LOOKED_AT // max(1, len(graph.nodes))))
    told = worst[:explained]
    causes = _Causes(plan, timeline, told)
    found = []
    for wait in told:
        comm = max(graph.waits_for[wait], key=lambda index: timeline.ends_s[index])
        found.append(
            _decision(
                f"compute stands still for {seconds_told(stalls[wait])}",
                causes.why(comm, wait),
                graph.nodes[comm].name,
            )
        )
    if len(worst) > explained:
        more = worst[explained:]
        total = sum(stalls[wait] for wait in more)
        found.append(
            _decision(
                f"compute stands still for {seconds_told(total)}",
                f"{len(more)} more collectives stay exposed",
            )
        )
    return found


@dataclass
class _Causes:
    """Why collectives stay exposed; what all of them are asked for is looked up once."""

    plan: Plan
    timeline: Timeline
    waits: list[int]

    @cached_property
    def position(self) -> dict[int, int]:
        """Where each node stands in the order."""
        return {member: place for place, step in enumerate(self.plan.chosen.steps) for member in step}

    @cached_property
    def compute(self) -> list[int]:
        """What could run beside a collective, in program order."""
        nodes = self.plan.graph.nodes
        return [i for i, node in enumerate(nodes) if node.kind is Kind.COMPUTE and node.time_s > 0]

    @cached_property
    def last_compute(self) -> int:
        return max((self.position[index] for index in self.compute), default=-1)

    @cached_property
    def depends(self) -> list[int]:
        """On which of the waits each node depends, a bit for each, host barriers included."""
        graph = self.plan.graph
        bit_of = {wait: 1 << number for number, wait in enumerate(self.waits)}
        found: list[int] = []
        seen = held = region = 0
        for index, node in enumerate(graph.nodes):
            if graph.region[index] != region:
                region, held = graph.region[index], seen
            bits = held | bit_of.get(index, 0)
            for source in node.inputs:
                bits |= found[source]
            found.append(bits)
            seen |= bits
        return found

    @cached_property
    def ended(self) -> dict[tuple[str | None, float], int]:
        """The collective of a group that ends at a time."""
        found: dict[tuple[str | None, float], int] = {}
        for comm in self.plan.graph.waits_of:
            found.setdefault((self.plan.graph.nodes[comm].group, self.timeline.ends_s[comm]), comm)
        return found

    def free(self, wait: int) -> int | None:
        """Compute that comes behind a wait without depending on it."""
        bit, place = 1 << self.waits.index(wait), self.position[wait]
        position, depends = self.position, self.depends
        return next((i for i in self.compute if position[i] > place and not depends[i] & bit), None)

    def why(self, comm: int, wait: int) -> str:
        """The reason for one collective and the wait that stands still for it."""
        graph, bounds = self.plan.graph, self.plan.bounds
        if self.last_compute <= self.position[wait]:
            return "stays exposed because no compute is left to run beside it"
        free = self.free(wait)
        if free is None:
            return "stays exposed because all compute that is left depends on it"
        group = graph.nodes[comm].group
        load = bounds.group_load_s[group or ""]
        if load > bounds.compute_load_s:
            more = f"group {group} has more work ({seconds_told(load)})"
            return f"stays exposed because {more} than the compute stream"
        start_s = self.timeline.starts_s[comm]
        before = self.ended.get((group, start_s))
        if before is not None and start_s > 0:
            return f"stays exposed because it queues behind {graph.nodes[before].name} in group {group}"
        if graph.budget_bytes is not None:
            return "stays exposed because issuing more before its wait is slower or over the memory budget"
        name = graph.nodes[free].name
        return f"stays exposed because this order issues {name}, which is independent, after it"


def _unused(graph: Graph) -> list[Decision]:
    return [
        _decision(
            "kept", "nobody waits for it, but the other ranks take part: it is waste", graph.nodes[comm].name
        )
        for comm, waits in graph.waits_of.items()
        if not waits
    ]


def _decision(action: str, reason: str, node: str | None = None) -> Decision:
    return {"node": node, "action": action, "reason": reason}
