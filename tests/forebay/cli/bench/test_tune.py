"""`forebay bench tune --sample`: what the others take for all trials, estimated from some of them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from forebay.cli.bench import tune


def case(sample: int | None) -> tune.Case:
    job = {"configs": [{"lr": 0.1 * number} for number in range(10)], "scheduler": "fifo"}
    return tune.Case("digits-mlp", "fifo", 10, 0, job, sample)


@pytest.mark.parametrize(("sample", "trained", "seconds"), [(None, 10, 26.0), (4, 4, 56.0)])
def test_the_start_counts_once_and_the_search_for_every_trial(monkeypatch, sample, trained, seconds):
    def timed(command):
        assert len(json.loads(Path(command[-1]).read_text())["configs"]) == trained
        return 26.0, {"metric": 0.9, "trials": trained, "search_s": 20.0}

    monkeypatch.setattr(tune, "_timed", timed)
    sampled = case(sample)
    assert tune._baseline(sampled, "ray")() == pytest.approx(seconds)
    # The best of some trials is not the best of all.
    assert sampled.metrics["ray"] == [0.9 if sample is None else None]


@pytest.mark.parametrize(
    "options",
    [
        ["--sample", "5"],
        ["--sample", "5", "--scheduler", "asha"],
        ["--sample", "20", "--scheduler", "fifo", "--trials", "20"],
    ],
)
def test_a_sample_needs_trials_that_all_train_as_long_and_more_of_them(options):
    answer = CliRunner().invoke(tune.command, options)
    assert answer.exit_code == 2
    assert "--sample" in answer.output
    assert "fifo" in answer.output
