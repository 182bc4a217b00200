"""The detector on simulated jobs: who is blamed, for what, since when."""

import numpy as np
import pytest

from telemetry.core.detector import FAULTS, Detector, StepBatch
from telemetry.core.detector.sequential import SETTLE

FOREVER = float("inf")


def told(detector, *, information=False):
    """The verdicts as short tuples."""
    return [
        (str(v.kind), v.subject.rank, v.subject.replica, v.subject.stage, v.state)
        for v in detector.verdicts()
        if information or v.kind != "workload_noise"
    ]


@pytest.mark.parametrize(
    ("what", "steps"),
    [
        ({}, 120),
        ({"jitter": 0.10}, 150),
        ({"sequences": True, "wall": True}, 150),
        ({"sequences": True, "jitter": 0.05}, 120),
        ({"first_steps_s": (20.0, 4.5, 1.5, 1.0), "wall": True}, 150),
        ({"replicas": 1, "stages": 1}, 200),
        ({"replicas": 2, "stages": 1, "jitter": 0.05}, 120),
        ({"replicas": 2, "tp": 2, "waits": True, "wall": True}, 150),
        ({"slow": {3: [(40, FOREVER, 1.10)]}}, 200),
        ({"replicas": 2, "slow": {3: [(40, FOREVER, 1.10)]}}, 200),
        ({"slow": {3: [(40, FOREVER, 1.05)]}, "jitter": 0.05}, 120),
        ({"stage_factor": (1.0, 1.1)}, 150),
        ({"stages": 4, "stage_factor": (1.0, 1.0, 1.0, 1.05)}, 150),
        ({"slow": {3: [(step, step + 1, 75.0) for step in range(50, 200, 50)]}}, 170),
    ],
    ids=lambda value: str(value)[:60],
)
def test_healthy_jobs_are_left_alone(job, watch, what, steps):
    assert told(watch(job(**what), steps)) == []


@pytest.mark.parametrize(
    "what",
    [
        {},
        {"jitter": 0.005},
        {"replicas": 3},
        {"replicas": 2},
        {"replicas": 1, "stages": 4},
        {"sequences": True},
        {"sequences": True, "wall": True, "replicas": 8},
        {"tp": 2, "waits": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("factor", [1.25, 2.5, 10.0])
def test_a_device_that_turns_slow_is_named_within_five_steps(job, watch, what, factor):
    detector = watch(job(slow={3: [(60, FOREVER, factor)]}, **what))
    (verdict,) = [v for v in detector.verdicts() if v.kind != "workload_noise"]
    assert (verdict.kind, verdict.subject.rank, verdict.state) == ("device_fail_slow", 3, "open")
    assert verdict.slowdown == pytest.approx(factor, rel=0.04)
    assert verdict.first_step == 60
    assert verdict.detected_step < 60 + 7
    assert 0.5 < verdict.confidence < 1
    assert {row.test for row in verdict.evidence} >= {"cusum", "peers"}


def test_a_slowdown_of_exactly_one_fifth_is_reported(job, watch):
    detector = watch(job(slow={3: [(60, FOREVER, 1.20)]}), 250)
    assert told(detector) == [("device_fail_slow", 3, 1, 1, "open")]


def test_a_device_slow_from_the_first_step_is_found_though_nothing_changes(job, watch):
    detector = watch(job(slow={3: [(0, FOREVER, 2.5)]}), 30)
    (verdict,) = detector.verdicts()
    assert (verdict.subject.rank, verdict.first_step) == (3, 0)
    assert verdict.detected_step <= SETTLE + 3
    assert verdict.slowdown == pytest.approx(2.5, rel=0.03)


@pytest.mark.parametrize(
    ("what", "rank"),
    [({"replicas": 2}, 3), ({"replicas": 1, "stages": 4}, 2), ({"replicas": 2, "stages": 1}, 1)],
)
def test_slow_from_the_start_without_peers_is_not_evidence_enough(job, watch, what, rank):
    detector = watch(job(slow={rank: [(0, FOREVER, 1.5)]}, **what))
    (verdict,) = detector.verdicts()
    assert (verdict.kind, verdict.subject.rank) == ("insufficient_evidence", rank)
    assert not verdict.is_open_fault


def test_when_all_turn_slow_together_nobody_is_blamed(job, watch):
    detector = watch(job(fleet_slow=(60, 1.3), wall=True))
    (verdict,) = detector.verdicts()
    assert (verdict.kind, verdict.first_step) == ("global_slowdown", 60)
    assert set(verdict.subject.to_json().values()) == {None}
    assert verdict.slowdown == pytest.approx(1.3, rel=0.03)


def test_a_stage_that_is_slow_in_every_replica_is_imbalance(job, watch):
    detector = watch(job(stages=4, stage_factor=(1.0, 1.0, 1.0, 1.6)))
    assert told(detector) == [("stage_imbalance", None, None, 3, "open")]
    assert detector.verdicts()[0].slowdown == pytest.approx(1.6, rel=0.03)
    assert not detector.verdicts()[0].is_open_fault


def test_wall_time_without_computation_is_a_link(job, watch):
    detector = watch(job(wall=True, wall_slow=(60, 1.4)))
    assert told(detector) == [("link_fail_slow", None, None, None, "open")]
    assert detector.verdicts()[0].first_step == 60


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_group_whose_slowest_rank_waits_has_a_slow_link(job, watch, replicas):
    detector = watch(job(replicas=replicas, tp=2, waits=True, group_slow=(1, 0, 60, 1.5)))
    assert told(detector) == [("link_fail_slow", None, 1, 0, "open")]


def test_groups_without_waits_are_judged_whole(job, watch):
    plain = job(tp=2, waits=True, slow={5: [(60, FOREVER, 1.5)]})
    detector = Detector()
    for batch in plain.steps(100):
        columns = batch.rank, batch.replica, batch.stage, batch.compute_s
        absent = np.full(len(batch), np.nan)
        detector.update(StepBatch(batch.step, *columns, absent, absent, absent, absent))
    assert told(detector) == [("device_fail_slow", None, 1, 0, "open")]


@pytest.mark.parametrize("onsets", [1, 2, 3, 4])
def test_the_third_onset_makes_one_intermittent(job, watch, onsets):
    spells = [(40 + 40 * number, 60 + 40 * number, 1.5) for number in range(onsets)]
    found = told(watch(job(slow={3: spells}), 220))
    if onsets < 3:
        assert found == [("device_fail_slow", 3, 1, 1, "cleared")] * onsets
    else:
        assert found == [("intermittent", 3, 1, 1, "open")]


def test_varying_sequences_are_noise_that_the_model_explains(job, watch):
    detector = watch(job(sequences=True), 150)
    assert [v.kind for v in detector.verdicts()] == ["workload_noise"]
    assert detector.model_document()["mape"] < 0.025
    assert not FAULTS & {v.kind for v in detector.verdicts()}


def test_the_workload_model_meets_its_aim_on_one_percent_noise(job, watch):
    detector = watch(job(sequences=True, jitter=0.01), 150)
    assert detector.model_document()["mape"] <= 0.016


def test_times_that_the_reported_work_does_not_explain_are_not_judged_by_it(job):
    detector, rng = Detector(), np.random.default_rng(1)
    for batch in job(replicas=4).steps(150):
        nonsense = rng.uniform(1e3, 1e4, len(batch))
        compute = batch.compute_s * np.exp(0.4 * rng.standard_normal(len(batch)))
        columns = batch.rank, batch.replica, batch.stage, compute, batch.wait_s, batch.wall_s
        detector.update(StepBatch(batch.step, *columns, nonsense, nonsense**2))
    assert {v.kind for v in detector.verdicts()} == {"insufficient_evidence"}
    assert any("workload model" in warning for warning in detector.warnings())


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("factor", [1e3, 1e6, 1e-3])
def test_a_rank_in_another_unit_is_dropped_counted_and_not_blamed(job, watch, replicas, factor):
    detector = watch(job(replicas=replicas, unit={1: factor}, wall=True), 50)
    assert told(detector) == []
    assert detector.intake.unit == 50
    assert detector.intake.coverage == pytest.approx(1 - 1 / (2 * replicas))
    assert any("rank 1 " in warning for warning in detector.warnings())


def test_a_rank_whose_samples_go_missing_is_judged_by_those_that_come(job):
    detector, rng = Detector(), np.random.default_rng(2)
    for batch in job(slow={3: [(40, FOREVER, 1.5)]}).steps(100):
        detector.update(batch.select(rng.random(len(batch)) < 0.7))
    assert told(detector) == [("device_fail_slow", 3, 1, 1, "open")]


def test_ranks_that_finish_early_are_no_fault(job):
    detector = Detector()
    for batch in job(replicas=3, stages=1).steps(60):
        detector.update(batch if batch.step < 50 else batch.select(batch.rank == 2))
    assert told(detector) == []


def test_another_layout_is_learned_anew(job):
    detector = Detector()
    for batch in job(replicas=2, stages=2).steps(60):
        detector.update(batch)
    for batch in job(replicas=4, stages=1, base_s=0.8, first_steps_s=(20.0, 3.0)).steps(60):
        detector.update(
            StepBatch(
                60 + batch.step, *(getattr(batch, n) for n in batch.__dataclass_fields__ if n != "step")
            )
        )
    assert told(detector) == []
    assert any("learned anew" in warning for warning in detector.warnings())


def test_memory_does_not_grow_with_time(job):
    detector = Detector()

    def arrays():
        test = detector.devices.test
        return (
            test.recent.size + test.differences.size + detector.usual.first.size + len(detector.fleet.cells)
        )

    steps = job(slow={3: [(at, at + 20, 1.5) for at in range(40, 1000, 40)]}).steps(240)
    sizes = []
    for batch in steps:
        detector.update(batch)
        sizes.append(arrays() + len(detector.ledger.verdicts))
    assert sizes[-1] == sizes[150]
