"""The planner of containers: cost by measurement, packing over devices, merging, splitting, compiling."""

from tuning.core.containers.compiling import (
    GPU_RULES,
    CompileRules,
    Judgement,
    break_even_steps,
    expected_compile_s,
    judge,
    worth_trying,
)
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
    "GPU_RULES",
    "PROBED_SIZES",
    "REPACK_S",
    "Candidate",
    "CompileRules",
    "Judgement",
    "Pack",
    "ShapeProfile",
    "break_even_steps",
    "expected_compile_s",
    "guessed_profile",
    "judge",
    "plan_packs",
    "profile_from_json",
    "run_seconds",
    "should_merge",
    "should_split",
    "size_limit",
    "worth_trying",
]
