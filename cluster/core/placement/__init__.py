"""Where a job goes: whole devices by counts, single devices by thousandths, pods by several resources."""

from cluster.core.placement.pool import NodePool, Slots
from cluster.core.placement.rules import PLACEMENTS, place_consolidated, place_relaxed

__all__ = ["PLACEMENTS", "NodePool", "Slots", "place_consolidated", "place_relaxed"]
