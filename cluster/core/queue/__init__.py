"""Between the rows of the live queue and the pure decision: demands, units, and what a decision changes."""

from cluster.core.queue.changes import Changes, changes_of
from cluster.core.queue.clock import QueueClock
from cluster.core.queue.demand import Demand, demand_from_json, demand_to_json
from cluster.core.queue.pace import pace_of
from cluster.core.queue.units import Entry, Held, Units, units_of

__all__ = [
    "Changes",
    "Demand",
    "Entry",
    "Held",
    "QueueClock",
    "Units",
    "changes_of",
    "demand_from_json",
    "demand_to_json",
    "pace_of",
    "units_of",
]
