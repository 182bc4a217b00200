"""Pipeline schedules as instruction lists, and their exact simulation."""

from jobs.core.pipeline.instructions import Chunk, Kind, Placement, Schedule
from jobs.core.pipeline.makespan import one_f_one_b_makespan, one_f_one_b_makespans
from jobs.core.pipeline.schedules import SCHEDULES, build_schedule
from jobs.core.pipeline.simulator import Bubble, Durations, Slot, Timeline, simulate

__all__ = [
    "SCHEDULES",
    "Bubble",
    "Chunk",
    "Durations",
    "Kind",
    "Placement",
    "Schedule",
    "Slot",
    "Timeline",
    "build_schedule",
    "one_f_one_b_makespan",
    "one_f_one_b_makespans",
    "simulate",
]
