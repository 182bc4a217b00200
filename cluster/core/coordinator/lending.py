"""Whether a job goes on lending its bubbles: its slowdown is measured, and lending ends where it is too much.

Every so often an iteration is left alone (a control), so that lent iterations are compared with others of the
same minutes and the same machine.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONTROL_EVERY = 10  # one iteration in so many lends nothing
EARLY_EVERY = 5  # and one in so many of the first ones, so that something can be said soon
ENOUGH = 20  # controls without which nothing is said
Z_95, DEVIATION_OF_MAD, ERROR_OF_MEDIAN = 1.96, 1.4826, 1.2533


@dataclass(frozen=True, slots=True)
class LendingPolicy:
    """What the job's owner allows: `limit` is the largest slowdown, a share of the iteration time.

    After an automatic stop lending is tried again `retry_s` later, each time after twice as long.
    """

    limit: float = 0.02
    retry_s: float = 300.0
    longest_retry_s: float = 7200.0

    @classmethod
    def of(cls, limit: float | None) -> "LendingPolicy":
        """Return the policy of a job that allows this slowdown; None stands for what most allow."""
        return cls() if limit is None else cls(limit=float(limit))

    def pause_s(self, stops: int) -> float:
        """How long lending rests after so many automatic stops."""
        return min(self.retry_s * 2 ** max(min(stops, 32) - 1, 0), self.longest_retry_s)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Median lent over median control, minus one; a 95 % interval; how many of each."""

    value: float
    low: float
    high: float
    lent: int
    controls: int


@dataclass(frozen=True, slots=True)
class LendingDecision:
    """`action` is keep, stop, resume or wait."""

    action: str
    reason: str


def is_control(iteration: int, every: int = CONTROL_EVERY, since: int | None = None) -> bool:
    """Whether an iteration is left alone; `since` is the first that was lent, if that is known."""
    if since is not None and iteration - since < EARLY_EVERY * ENOUGH:
        every = min(every, EARLY_EVERY)
    return iteration % every == every - 1


def measure_slowdown(lent_s: Sequence[float], control_s: Sequence[float]) -> Slowdown | None:
    """Compare iteration times; None while there are too few.

    The interval is that of a ratio of two medians whose errors are normal: a median of n values errs by
    1.2533 s / sqrt(n), with s taken from the median absolute deviation. It is cheap, because it is computed
    on a core that somebody else pays for.
    """
    if len(control_s) < ENOUGH or len(lent_s) < ENOUGH:
        return None
    lent, lent_error = _median(lent_s)
    control, control_error = _median(control_s)
    width = Z_95 * math.hypot(lent_error / lent, control_error / control)
    ratio = lent / control
    return Slowdown(
        ratio - 1, ratio * math.exp(-width) - 1, ratio * math.exp(width) - 1, len(lent_s), len(control_s)
    )


def _median(values: Sequence[float]) -> tuple[float, float]:
    """A median and its standard error."""
    middle = statistics.median(values)
    deviation = DEVIATION_OF_MAD * statistics.median(abs(value - middle) for value in values)
    return middle, ERROR_OF_MEDIAN * deviation / math.sqrt(len(values))


def decide_lending(
    policy: LendingPolicy,
    slowdown: Slowdown | None,
    *,
    lending: bool,
    switched_off: bool,
    stops: int = 0,
    stopped_at_s: float = 0.0,
    now_s: float = 0.0,
) -> LendingDecision:
    """Decide for one job. `stops` counts automatic stops so far; times are monotonic seconds."""
    if switched_off:
        return LendingDecision("stop" if lending else "wait", "an operator has switched lending off")
    if not lending:
        return _retry(policy, stops, stopped_at_s, now_s)
    if slowdown is None:
        return LendingDecision("keep", f"fewer than {ENOUGH} iterations without guests to compare with")
    measured = (
        f"slowdown {slowdown.value:+.2%} ({slowdown.low:+.2%} to {slowdown.high:+.2%}), "
        f"limit {policy.limit:.2%}, {slowdown.lent} lent and {slowdown.controls} control iterations"
    )
    if slowdown.value > policy.limit and slowdown.low > 0:
        return LendingDecision("stop", measured)
    return LendingDecision("keep", measured)


def _retry(policy: LendingPolicy, stops: int, stopped_at_s: float, now_s: float) -> LendingDecision:
    if not stops:
        return LendingDecision("resume", "nothing speaks against lending")
    pause_s = policy.pause_s(stops)
    left_s = stopped_at_s + pause_s - now_s
    if left_s > 0:
        return LendingDecision("wait", f"stopped {stops} times for slowing it; tried again in {left_s:.0f} s")
    return LendingDecision("resume", f"{pause_s:.0f} s have passed since the last automatic stop")
