"""What the charts of a study are made from: rungs, lanes, costs, twins."""

import pytest

from tuning.models import Container, Study, Target, Trial
from tuning.queries.compiling import compile_sentences
from tuning.queries.ladder import fates_of, ladder_of
from tuning.queries.spending import alone_of, shares_of, spending_of
from tuning.queries.timeline import timeline_of
from tuning.queries.transfer import fidelity_of, report_of, twins_of

ASHA = {"name": "asha", "grace": 1, "reduction": 2}


@pytest.fixture
def study(job):
    job.spec = {"scheduler": ASHA, "epochs": 4, "scaling": 8}
    job.save()
    return Study.objects.create(job=job, workload="w", metric="accuracy", mode="max", trials_total=5)


def trial(job, number, state, curve, reason=None, **values):
    curve = [[epoch, metric] for epoch, metric in enumerate(curve, start=1)]
    metric = curve[-1][1] if curve else None
    return Trial.objects.create(
        job=job, number=number, config={}, state=state, curve=curve, epochs=len(curve), metric=metric,
        reason=reason, **values,
    )  # fmt: skip


def container(job, run, trials, device, start_s, end_s, from_epoch=0, epochs=0, **values):
    return Container.objects.create(
        job=job, run=run, trials=trials, batch_size=32, device_label=device, start_s=start_s, end_s=end_s,
        from_epoch=from_epoch, epochs=epochs, **values,
    )  # fmt: skip


def test_a_rung_counts_who_went_on_who_was_stopped_and_who_waits(job, study):
    trial(job, 0, "completed", [0.5, 0.7, 0.8, 0.9])
    trial(job, 1, "stopped", [0.4, 0.5], "rank 2 of 2 at epoch 2, where the best 1 go on")
    trial(job, 2, "stopped", [0.1], "rank 4 of 4 at epoch 1, where the best 2 go on")
    trial(job, 3, "running", [0.3])
    trial(job, 4, "failed", [None], "broke")
    first, second = ladder_of(job)
    assert (first.epoch, first.reached, first.went_on, first.stopped) == (1, 5, 2, 1)
    assert (first.waiting, first.ended, first.best, first.cutoff) == (1, 1, 0.5, 0.4)
    assert (second.epoch, second.reached, second.went_on, second.stopped) == (2, 2, 1, 1)
    reasons = {(fate.trial, fate.rung): fate.reason for fate in fates_of(job)}
    assert reasons[1, 1] == ""
    assert reasons[1, 2].startswith("rank 2 of 2")
    job.spec["scheduler"] = {"name": "fifo"}
    assert ladder_of(job) == []


def test_lanes_say_where_trials_came_from(job, study):
    container(job, "c0", [0, 1, 2, 3], "cpu:0", 0.0, 1.0, epochs=2)
    container(job, "c1", [4, 5], "cpu:1", 0.0, 1.5, epochs=2)
    container(job, "c2", [0, 4], "cpu:0", 2.0, 3.0, 2, 4)
    container(job, "c3", [1], "cpu:1", 2.0, None, 2)
    study.spending = {"chores": [
        {"run": "p9", "kind": "profile", "device": "cpu:1", "start_s": -0.5, "end_s": -0.1}
    ]}  # fmt: skip
    study.save()
    job.refresh_from_db()
    lanes = {lane["id"]: lane["intervals"] for lane in timeline_of(job)["lanes"]}
    assert [one["kind"] for one in lanes["cpu:1"]] == ["profile", "fused", "trial"]
    merged, split = lanes["cpu:0"][1], lanes["cpu:1"][2]
    assert (merged["from"], merged["change"]) == (["c0", "c1"], "merge")
    assert (split["from"], split["change"]) == (["c0"], "split")
    assert "merged from c0, c1" in merged["label"]
    assert lanes["cpu:0"][0]["change"] is None


def test_a_trials_share_is_per_epoch_that_it_was_there(job, study):
    trial(job, 0, "completed", [0.5, 0.6, 0.7, 0.8])
    trial(job, 1, "stopped", [0.1])
    container(job, "c0", [0, 1], "cpu:0", 0.0, 2.0, 0, 4, spent={"0": 1.6, "1": 0.4})
    assert {(one.trial, one.size, one.seconds_per_epoch) for one in shares_of(job)} == {
        (0, 2, 0.4), (1, 2, 0.4)
    }  # fmt: skip
    job.summary = {"fusion": {"32": {"step_s": {"1": 0.01}, "steps_per_epoch": 50, "batch_size": 32}}}
    assert alone_of(job) == {32: 0.5}


def test_device_time_adds_up_to_the_devices_times_the_elapsed_time(job, study):
    container(job, "c0", [0], "cpu:0", 0.0, 2.0)
    container(job, "c1", [1], "cpu:1", 0.0, 2.0)
    study.spending = {"trial_device_s": 12.0, "target_device_s": 5.0, "profiling_s": 1.0, "repacking_s": 0.5}
    study.save()
    job.refresh_from_db()
    parts = spending_of(job, 10.0)
    assert sum(parts.values()) == pytest.approx(20.0)
    assert parts["idle"] == pytest.approx(1.5)


def test_seconds_of_compiling_are_a_part_of_their_own_and_of_no_other(job, study):
    study.spending = {
        "trial_device_s": 12.0, "target_device_s": 5.0, "compiling_s": 3.0, "target_compiling_s": 2.0
    }  # fmt: skip
    parts = spending_of(job, 20.0)
    assert (parts["search"], parts["target"], parts["compiling"]) == (11.0, 3.0, 3.0)


def test_the_page_tells_the_latest_decision_about_each_graph(job, study):
    first = {
        "model": "target", "shape": '{"batch_size": 32}', "device": "cpu", "torch": "2.13.0", "threads": 1,
        "outcome": "kept", "reason": "a compiled step saves 5 ms of 40 ms", "compile_s": 12.0,
    }  # fmt: skip
    job.summary = {"compile": [first, {**first, "outcome": "dropped", "reason": "it was slower"}]}
    assert compile_sentences(job) == [
        "Compiling the target with batch size 32 on cpu (measured, 12.0 s): dropped, it was slower."
    ]
    job.summary = {}
    assert compile_sentences(job) == []


def test_targets_are_compared_with_their_own_trials(job, study):
    for number, surrogate, full in ((0, 0.9, 0.95), (1, 0.8, 0.97), (2, 0.7, None)):
        row = trial(job, number, "completed", [surrogate])
        Target.objects.create(job=job, trial=row, state="completed", metric=full)
    assert [(twin.trial, twin.surrogate, twin.target) for twin in twins_of(job)] == [
        (0, 0.9, 0.95), (1, 0.8, 0.97)
    ]  # fmt: skip
    assert fidelity_of(job).regret_top_1 == pytest.approx(0.02)
    assert report_of(job) == {"under_way": False}
