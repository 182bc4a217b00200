"""When survivors are merged with others, and when a container is split over idle devices."""

from tuning.core.containers.cost import ShapeProfile
from tuning.core.containers.packing import run_seconds

REPACK_S = 0.15  # saving, loading and binding again, until it was measured
MARGIN = 2.0  # a repacking must save this many times its own cost


def merge_gain(profile: ShapeProfile, size: int, others: int, epochs: float) -> float:
    """Return the device seconds saved by running `size` and `others` trials as one container."""
    apart = run_seconds(profile, size, epochs) + run_seconds(profile, others, epochs)
    return apart - run_seconds(profile, size + others, epochs)


def should_merge(
    profile: ShapeProfile, size: int, others: int, limit: int, epochs: float, repack_s: float = REPACK_S
) -> bool:
    """Return whether a container of `size` survivors should pause to join `others` at the same rung."""
    if not others or not size or size >= limit:
        return False
    joined = min(others, limit - size)
    return merge_gain(profile, size, joined, epochs) > MARGIN * repack_s


def split_gain(profile: ShapeProfile, size: int, devices: int, epochs: float) -> float:
    """Return the wall seconds saved by spreading a container over `devices` devices (1 is its own)."""
    pieces = min(devices, size)
    return run_seconds(profile, size, epochs) - run_seconds(profile, -(-size // pieces), epochs)


def should_split(
    profile: ShapeProfile, size: int, devices: int, epochs: float, repack_s: float = REPACK_S
) -> bool:
    """Return whether a container should pause and go on in pieces because devices are idle."""
    if size < 2 or devices < 2:
        return False
    return split_gain(profile, size, devices, epochs) > MARGIN * repack_s
