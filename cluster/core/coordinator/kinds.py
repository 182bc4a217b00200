"""Which generation of device suits a trial (Hydro, section 5.2: heterogeneity-aware allocation)."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.core.policies.hpo import LOW_ACTIVITY, KindOffer

MOST_GROWTH = 0.05


@dataclass(frozen=True, slots=True)
class TrialNeeds:
    """A trial (or container) that wants a device.

    Attributes:
        activity: measured share of time in which the newest device computes (SM activity, CPU share).
        trial_remaining_s: on the newest kind.
        job_remaining_s: predicted time to the end of the whole job with this trial on the newest kind.
    """

    is_target: bool
    activity: float
    memory_bytes: int
    trial_remaining_s: float
    job_remaining_s: float


@dataclass(frozen=True, slots=True)
class KindDecision:
    """The kind to take (None: wait) and why."""

    kind: str | None
    reason: str


def place_trial(
    needs: TrialNeeds,
    offers: Sequence[KindOffer],
    low_activity: float = LOW_ACTIVITY,
    most_growth: float = MOST_GROWTH,
) -> KindDecision:
    """Choose among the kinds that have a free device.

    A target that leaves its device half idle goes to the oldest kind that has the memory and does not let the
    job end later by more than `most_growth`; everything else goes to the newest.
    """
    fitting = sorted((o for o in offers if o.memory_bytes >= needs.memory_bytes), key=lambda o: o.age)
    if not fitting:
        return KindDecision(None, f"no free device has {needs.memory_bytes} bytes")
    newest = fitting[0].kind
    if not needs.is_target:
        return KindDecision(newest, "fused trials gain most from the newest kind")
    if needs.activity >= low_activity:
        return KindDecision(newest, f"activity {needs.activity:.0%} is not below {low_activity:.0%}")
    bound_s = needs.job_remaining_s * (1 + most_growth)
    for offer in reversed(fitting):
        end_s = max(needs.job_remaining_s, needs.trial_remaining_s * offer.slowdown)
        if end_s <= bound_s and offer.kind != newest:
            grown = end_s / needs.job_remaining_s - 1 if needs.job_remaining_s else 0.0
            return KindDecision(
                offer.kind,
                f"activity {needs.activity:.0%} is below {low_activity:.0%}; the job ends {grown:.1%} later",
            )
    if len(fitting) == 1:
        return KindDecision(newest, "no other kind is free")
    return KindDecision(newest, f"on any older kind the job would end more than {most_growth:.0%} later")
