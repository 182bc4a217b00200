"""What Hydro's Coordinator decides (OSDI 2023, sections 4.3 and 5): bubbles, release, growth, device kinds.

Every decision carries its reason in words and the numbers it was made from.
"""

from cluster.core.coordinator.bundles import BundleDecision, StudyState, decide_bundles
from cluster.core.coordinator.kinds import KindDecision, TrialNeeds, place_trial
from cluster.core.coordinator.lending import (
    LendingDecision,
    LendingPolicy,
    Slowdown,
    decide_lending,
    is_control,
    measure_slowdown,
)
from cluster.core.coordinator.slots import (
    GuestProfile,
    Slot,
    SlotDecision,
    choose_guest,
    fusion_for_slots,
    largest_fitting,
    refusal,
)

__all__ = [
    "BundleDecision",
    "GuestProfile",
    "KindDecision",
    "LendingDecision",
    "LendingPolicy",
    "Slot",
    "SlotDecision",
    "Slowdown",
    "StudyState",
    "TrialNeeds",
    "choose_guest",
    "decide_bundles",
    "decide_lending",
    "fusion_for_slots",
    "is_control",
    "largest_fitting",
    "measure_slowdown",
    "place_trial",
    "refusal",
]
