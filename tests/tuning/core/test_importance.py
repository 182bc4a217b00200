"""Parameter importance on functions whose answer is known."""

import random

import numpy as np
import pytest

from tuning.core.importance import LEAST_TRIALS, encoded, explain, ranked, varying


def trials(count, metric, seed=0):
    """Return configurations of four parameters and a metric of each."""
    rng = random.Random(seed)
    configs = [
        {
            "lr": 10 ** rng.uniform(-4, 0),
            "momentum": rng.random(),
            "opt": rng.choice(["sgd", "adam"]),
            "fixed": 3,
        }
        for _ in range(count)
    ]
    return configs, [metric(config) for config in configs]


def test_the_only_parameter_that_matters_gets_nearly_everything():
    found = explain(*trials(200, lambda c: -abs(np.log10(c["lr"]) + 2)))
    assert [share.name for share in found.shares][0] == "lr"
    assert found.shares[0].share > 0.9
    assert found.r2 > 0.8
    assert "fixed" not in [share.name for share in found.shares]


def test_two_equal_parameters_share_and_the_shares_sum_to_one():
    configs, _ = trials(300, lambda c: 0.0)
    found = explain(configs, [c["momentum"] + (c["opt"] == "adam") for c in configs])
    shares = {share.name: share.share for share in found.shares}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["lr"] < 0.05
    assert shares["opt"] > 0.2
    assert shares["momentum"] > 0.1


def test_noise_explains_nothing_on_trials_not_seen():
    rng = random.Random(1)
    found = explain(*trials(100, lambda c: rng.random()))
    assert found.r2 < 0.1


def test_one_diverged_trial_changes_little():
    configs, metrics = trials(150, lambda c: -abs(np.log10(c["lr"]) + 2))
    metrics[0] = -1e30
    assert explain(configs, metrics).shares[0].name == "lr"


def test_the_same_trials_give_the_same_answer():
    configs, metrics = trials(60, lambda c: c["momentum"])
    assert explain(configs, metrics) == explain(configs, metrics)


@pytest.mark.parametrize(
    ("configs", "metrics"),
    [
        ([{"lr": i} for i in range(LEAST_TRIALS - 1)], list(range(LEAST_TRIALS - 1))),
        ([{"lr": 1}] * 30, list(range(30))),
        ([{"lr": i} for i in range(30)], [0.5] * 30),
        ([], []),
    ],
)
def test_too_few_or_equal_trials_give_no_answer(configs, metrics):
    assert explain(configs, metrics) is None


def test_a_conditional_parameter_varies_and_its_absence_has_a_code():
    configs = [{"opt": "sgd", "momentum": 0.9}, {"opt": "adam"}]
    assert varying(configs) == ["opt", "momentum"]
    assert encoded(configs, ["opt", "momentum"]).tolist() == [[0.0, 0.9], [1.0, -1.0]]


def test_equal_metrics_share_their_mean_rank():
    assert ranked([1.0, 3.0, 1.0, 2.0]).tolist() == pytest.approx([1 / 6, 1.0, 1 / 6, 2 / 3])
