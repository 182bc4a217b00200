"""Usage that fades: device-seconds with a half-life, so that yesterday weighs more than last month."""

import math
from collections.abc import Mapping

DEFAULT_HALF_LIFE_S = 7 * 86_400.0


def decayed(value: float, elapsed_s: float, half_life_s: float = DEFAULT_HALF_LIFE_S) -> float:
    """Return what is left of a usage after a time; a clock that jumped back decays nothing."""
    return value * 0.5 ** (max(elapsed_s, 0.0) / half_life_s)


def accrued(device_s: float, elapsed_s: float, half_life_s: float = DEFAULT_HALF_LIFE_S) -> float:
    """Return the decayed usage of holding devices evenly over the elapsed time, `device_s` in all.

    The integral of a constant rate under exponential decay: rate * (1 - 2^-x) / (ln 2 / half_life).
    """
    if elapsed_s <= 0:
        return 0.0
    x = elapsed_s / half_life_s * math.log(2)
    return device_s * -math.expm1(-x) / x


def advance_usage(
    usage: Mapping[str, float],
    held_devices: Mapping[str, float],
    elapsed_s: float,
    half_life_s: float = DEFAULT_HALF_LIFE_S,
) -> dict[str, float]:
    """Return every owner's usage after a time in which each held so many devices."""
    elapsed_s = max(elapsed_s, 0.0)
    owners = {**usage, **held_devices}
    return {
        owner: decayed(usage.get(owner, 0.0), elapsed_s, half_life_s)
        + accrued(held_devices.get(owner, 0.0) * elapsed_s, elapsed_s, half_life_s)
        for owner in owners
    }
