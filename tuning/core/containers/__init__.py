"""The planner of containers: cost by measurement, packing over devices, merging and splitting."""

from tuning.core.containers.cost import (
    PROBED_SIZES,
    ShapeProfile,
    guessed_profile,
    profile_from_json,
    size_limit,
)
from tuning.core.containers.packing import Candidate, Pack, plan_packs, run_seconds
from tuning.core.containers.repacking import REPACK_S, should_merge, should_split

__all__ = [
    "PROBED_SIZES",
    "REPACK_S",
    "Candidate",
    "Pack",
    "ShapeProfile",
    "guessed_profile",
    "plan_packs",
    "profile_from_json",
    "run_seconds",
    "should_merge",
    "should_split",
    "size_limit",
]
