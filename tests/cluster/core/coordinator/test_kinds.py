"""Which generation of device a trial takes."""

import pytest

from cluster.core.coordinator import TrialNeeds, place_trial
from cluster.core.policies.hpo import KindOffer

A100 = KindOffer("a100", 0, 80, 1.0)
V100 = KindOffer("v100", 1, 32, 1.3)
K80 = KindOffer("k80", 2, 12, 4.0)


@pytest.mark.parametrize(
    ("is_target", "activity", "memory", "trial_s", "job_s", "offers", "kind", "words"),
    [
        (False, 0.2, 10, 100, 1000, [A100, V100, K80], "a100", "fused trials"),
        (True, 0.5, 10, 100, 1000, [A100, V100, K80], "a100", "not below 50%"),
        (True, 0.49, 10, 100, 1000, [A100, V100, K80], "k80", "ends 0.0% later"),
        (True, 0.49, 20, 100, 1000, [A100, V100, K80], "v100", "below 50%"),
        (True, 0.49, 10, 100, 200, [A100, V100, K80], "v100", "ends 0.0% later"),
        (True, 0.49, 10, 100, 125, [A100, V100, K80], "v100", "ends 4.0% later"),
        (True, 0.49, 10, 100, 100, [A100, V100, K80], "a100", "more than 5% later"),
        (True, 0.49, 10, 100, 1000, [A100], "a100", "no other kind"),
        (True, 0.49, 90, 100, 1000, [A100, V100], None, "no free device"),
        (False, 1.0, 10, 100, 1000, [V100, K80], "v100", "fused trials"),
        (True, 0.1, 10, 100, 1000, [], None, "no free device"),
    ],
)
def test_idle_targets_go_to_the_oldest_kind_within_bounds_and_the_rest_to_the_newest(
    is_target, activity, memory, trial_s, job_s, offers, kind, words
) -> None:
    decision = place_trial(TrialNeeds(is_target, activity, memory, trial_s, job_s), offers)
    assert decision.kind == kind
    assert words in decision.reason
