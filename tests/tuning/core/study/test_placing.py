"""What the study's placing tells those who measure."""

from typing import Any

import pytest

from tests.tuning.core.study.test_transferring import study
from tuning.core.study import Profile


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ({"name": "fifo"}, 9.0),
        # Of nine epochs three are for all, six for the third that passes the rung.
        ({"name": "asha", "grace": 3, "reduction": 3}, 3 + 6 / 3),
        ({"name": "asha", "grace": 1, "reduction": 3}, 1 + 2 / 3 + 6 / 9),
    ],
)
def test_a_profile_may_cost_a_share_of_what_trials_are_expected_to_train(
    scheduler: dict[str, Any], expected: float
) -> None:
    actions = study(scheduler=scheduler, epochs=9).decide(0.0)
    profiles = [action for action in actions if isinstance(action, Profile)]
    assert [action.epochs for action in profiles] == [pytest.approx(expected)] * 2
