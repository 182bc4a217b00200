"""One door to the event simulations: a policy by name on a trace and a cluster."""

from collections.abc import Sequence

from cluster.core.errors import UnknownPolicy
from cluster.core.placement.rules import PLACEMENTS
from cluster.core.policies import ORDERED, Blocking, Policy, policy_by_name
from cluster.core.simulator.clock import Observer, PreemptionCost, no_cost
from cluster.core.simulator.deadlines import simulate_deadlines
from cluster.core.simulator.preemptive import simulate_preemptive
from cluster.core.simulator.queueing import simulate_queue
from cluster.core.simulator.reservations import simulate_conservative
from cluster.core.simulator.result import SimulationResult
from cluster.core.traces.nodes import NodeSpec
from cluster.core.workload import JobTable


def simulate(
    jobs: JobTable,
    nodes: Sequence[NodeSpec],
    policy: str | Policy,
    *,
    placement: str = "consolidated",
    cost: PreemptionCost = no_cost,
    observer: Observer | None = None,
) -> SimulationResult:
    """Simulate a policy on a trace until every job it lets in has ended.

    Args:
        policy: a name of `ORDERED` or a policy of one's own.
        placement: a name of `PLACEMENTS`.
        cost: seconds that a stop adds to what a job of so many devices has left.
        observer: called after every decision with the simulation.

    Raises:
        UnknownPolicy: no policy or placement of that name.
    """
    if placement not in PLACEMENTS:
        raise UnknownPolicy(placement, list(PLACEMENTS))
    if isinstance(policy, str):
        policy = policy_by_name(policy, sum(node.devices for node in nodes))
    place = PLACEMENTS[placement]
    if policy.name == "deadline":
        return simulate_deadlines(jobs, nodes, place, cost, observer)
    if policy.preempts:
        return simulate_preemptive(jobs, nodes, policy, place, cost, observer)
    if policy.blocking is Blocking.CONSERVATIVE:
        return simulate_conservative(jobs, nodes, place, observer)
    return simulate_queue(jobs, nodes, policy, place, observer)


POLICY_NAMES = tuple(ORDERED)
