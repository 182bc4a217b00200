"""The policies of the queue, by name; the simulator and the live coordinator use the same objects."""

from collections.abc import Callable

from cluster.core.errors import UnknownPolicy
from cluster.core.policies.backfill import ConservativeBackfill, EasyBackfill
from cluster.core.policies.deadline import DeadlineAdmission, EarliestDeadlineFirst, LeastSlackFirst
from cluster.core.policies.fair import FairShare
from cluster.core.policies.fifo import Fifo, FifoSkip
from cluster.core.policies.gittins import GittinsIndex
from cluster.core.policies.interface import Blocking, Policy
from cluster.core.policies.las import LeastAttainedService
from cluster.core.policies.lucid import Packing
from cluster.core.policies.pollux import GoodputWidths
from cluster.core.policies.sjf import ShortestJobFirst
from cluster.core.policies.srtf import ShortestRemainingService, ShortestRemainingTime
from cluster.core.policies.themis import FinishTimeFairness
from cluster.core.policies.timeshares import gavel_fairness, gavel_finish_time, gavel_makespan

__all__ = ["LIVE", "ORDERED", "Blocking", "Policy", "live_policy", "policy_by_name"]

# name -> policy for a cluster of so many devices
ORDERED: dict[str, Callable[[int], Policy]] = {
    "fifo": lambda devices: Fifo(),
    "fifo-skip": lambda devices: FifoSkip(),
    "backfill": lambda devices: EasyBackfill(),
    "conservative": lambda devices: ConservativeBackfill(),
    "sjf": lambda devices: ShortestJobFirst(),
    "srtf": lambda devices: ShortestRemainingTime(),
    "srsf": lambda devices: ShortestRemainingService(),
    "las": lambda devices: LeastAttainedService(),
    "gittins": lambda devices: GittinsIndex(),
    "themis": lambda devices: FinishTimeFairness(devices),
    "fair": lambda devices: FairShare(),
    "edf": lambda devices: EarliestDeadlineFirst(),
    "least-slack": lambda devices: LeastSlackFirst(),
    "deadline": lambda devices: DeadlineAdmission(),
}

# The policies of the live queue: those above, and those that need to know more of a job than a trace tells.
LIVE: dict[str, Callable[[int], Policy]] = {
    **ORDERED,
    # What a lease is in a trace is the minimum run time live.
    "themis": lambda devices: FinishTimeFairness(devices, lease_s=0.0),
    "gavel": lambda devices: gavel_fairness(),
    "gavel-makespan": lambda devices: gavel_makespan(),
    "gavel-finish-time": lambda devices: gavel_finish_time(),
    "lucid": lambda devices: Packing(),
    "pollux": GoodputWidths,
}


def policy_by_name(name: str, devices: int) -> Policy:
    """Return a policy for a cluster of so many devices; UnknownPolicy where there is none of that name."""
    if name not in ORDERED:
        raise UnknownPolicy(name, list(ORDERED))
    return ORDERED[name](devices)


def live_policy(name: str, devices: int) -> Policy:
    """Return a policy of the live queue for so many devices; UnknownPolicy where there is none."""
    if name not in LIVE:
        raise UnknownPolicy(name, list(LIVE))
    return LIVE[name](devices)
