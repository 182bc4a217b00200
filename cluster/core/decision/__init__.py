"""The live decision: cluster state in, starts, preemptions, reasons and predictions out."""

from cluster.core.decision.decide import decide
from cluster.core.decision.outcome import Decision, Preemption, Start, Wait
from cluster.core.decision.state import (
    ClusterState,
    JobView,
    NodeView,
    Reservation,
    Settings,
    Slice,
    state_from_record,
    state_record,
)

__all__ = [
    "ClusterState",
    "Decision",
    "JobView",
    "NodeView",
    "Preemption",
    "Reservation",
    "Settings",
    "Slice",
    "Start",
    "Wait",
    "decide",
    "state_from_record",
    "state_record",
]
