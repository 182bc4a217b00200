"""How fast a job gets on with what it has: the kind of its devices, how many, and whether it shares them."""

from collections.abc import Sequence

from cluster.core.decision.state import Slice
from cluster.core.policies.pollux import speed_on
from cluster.core.queue.demand import Demand
from cluster.core.requests import MILLI


def pace_of(demand: Demand, kind: str, slices: Sequence[Slice]) -> float:
    """Return progress per second on these devices, all of one kind; 1 is a gang alone where it is not faster.

    A job without devices that asks for some makes no progress.
    """
    if not slices:
        return 0.0 if demand.devices else 1.0
    pace = dict(demand.speeds).get(kind, 1.0)
    if demand.elastic:
        return pace * speed_on(demand.speedup, len(slices))
    whole = all(task.milli == MILLI and not task.memory_bytes for task in demand.tasks)
    shared = whole and min(piece.milli for piece in slices) < MILLI
    return pace * demand.keeps if shared and demand.keeps else pace
