from dataclasses import replace

import pytest

from jobs.core.errors import NoFeasiblePlan
from jobs.core.training import ModelShape
from jobs.core.training.calibration import Calibration, Reference, layer_costs
from jobs.core.training.planning import Situation, answer

MODEL = ModelShape(layers=4, width=64, heads=4, context=64, microbatch_tokens=256)


def clock():
    return 0.0


def layout(*replicas):
    """Replicas of (micro-batches, [(ranks, layers), ...])."""
    return {
        "replicas": [
            {
                "microbatches": count,
                "stages": [{"devices": [f"r{r}" for r in ranks], "layers": n} for ranks, n in stages],
            }
            for count, stages in replicas
        ]
    }


FOUR = layout((4, [((0,), 2), ((1,), 2)]), (4, [((2,), 2), ((3,), 2)]))


def measured(slow=None, factor=1.0, ranks=4):
    return {
        str(r): {
            "forward_s": 0.01 * (factor if r == slow else 1),
            "backward_s": 0.02 * (factor if r == slow else 1),
        }
        for r in range(ranks)
    }


def situation(speeds, **changes):
    base = Situation(
        model=MODEL, schedule="1f1b", layout=FOUR, nodes=("n0",) * 4, memory_bytes=(1 << 30,) * 4,
        speeds=speeds, measured=measured(1, 3.0), measured_iteration_s=0.5, steps_left=1000,
    )  # fmt: skip
    return replace(base, **changes)


def test_a_slow_rank_gets_less_and_the_gain_is_stated():
    found = answer(situation({1: 1 / 3}), clock)
    assert found.chosen is not None
    assert found.chosen.kind in ("regroup", "repartition", "exclude")
    assert found.baseline_iteration_s == pytest.approx(0.5)
    assert found.chosen.iteration_s < 0.6 * found.baseline_iteration_s
    assert found.facts["costs_measured"]
    names = [other.name for other in found.alternatives]
    assert {"no_action", "rebalance", "repartition", "drop_replicas"} <= set(names)
    assert all(other.reason for other in found.alternatives)


def test_a_dead_rank_is_left_out_and_its_state_comes_from_its_peer():
    found = answer(situation({1: 0.0}, measured=measured()), clock)
    assert found.chosen is not None
    assert found.chosen.layout["dead"] == ["r1"]
    assert found.baseline_iteration_s is None
    assert (found.chosen.needs_checkpoint, found.chosen.moved_bytes > 0) == (False, True)


def test_a_dead_rank_without_a_peer_means_back_to_the_checkpoint():
    alone = layout((8, [((0,), 2), ((1,), 2)]))
    one = situation(
        {1: 0.0}, layout=alone, nodes=("n0",) * 2, memory_bytes=(1 << 30,) * 2, measured=measured(ranks=2),
        steps_since_checkpoint=10,
    )  # fmt: skip
    found = answer(one, clock)
    assert found.chosen is not None
    assert found.chosen.needs_checkpoint
    assert found.chosen.pause_s > 10 * 0.5


def test_nothing_is_proposed_for_a_slowdown_that_no_layout_mends():
    # All alike: 1F1B with equal stages is as fast as it gets.
    found = answer(situation({}, measured=measured()), clock)
    if found.chosen is not None:
        assert found.chosen.iteration_s < 0.97 * found.baseline_iteration_s
    mild = answer(situation({1: 0.98}, measured=measured(1, 1.02)), clock)
    assert mild.chosen is None or mild.chosen.iteration_s < 0.97 * mild.baseline_iteration_s


def test_a_plan_that_does_not_make_up_for_its_pause_is_not_proposed():
    found = answer(situation({1: 1 / 3}, steps_left=1), clock)
    assert (found.chosen, "does not make up for its pause" in found.reason) == (None, True)


def test_a_schedule_of_two_chunks_gets_only_layouts_it_can_run():
    found = answer(situation({1: 1 / 3}, schedule="zb-v"), clock)
    if found.chosen is not None:
        assert min(s["layers"] for r in found.chosen.layout["replicas"] for s in r["stages"]) >= 2


def test_without_memory_there_is_no_plan_and_the_cause_is_said():
    with pytest.raises(NoFeasiblePlan):
        answer(situation({1: 0.0}, memory_bytes=(2_000_000,) * 4), clock)


def test_memory_is_stated_for_every_rank_before_and_after():
    found = answer(situation({1: 1 / 3}), clock)
    assert [row["rank"] for row in found.chosen.memory] == [0, 1, 2, 3]
    assert all(row["after_bytes"] <= row["available_bytes"] for row in found.chosen.memory)


def test_layer_costs_are_those_that_were_measured():
    costs = layer_costs(MODEL, FOUR, measured(1, 3.0), {1: 1 / 3})
    assert costs.measured
    assert sum(costs.forward_s[:2]) == pytest.approx(0.01)
    assert sum(costs.forward_s[2:]) == pytest.approx(0.01)
    assert sum(costs.backward_s) == pytest.approx(0.04)


def test_the_last_layer_carries_what_the_output_costs():
    rows = measured()
    for rank in ("1", "3"):
        rows[rank] = {"forward_s": 0.014, "backward_s": 0.02}
    costs = layer_costs(MODEL, FOUR, rows, {})
    assert costs.forward_s == pytest.approx((0.005, 0.005, 0.005, 0.009))


@pytest.mark.parametrize(
    ("present", "calm", "other", "predicted"),
    [
        (None, None, 0.2, 0.2),
        (Reference(0.4, 0.5), None, 0.2, 0.25),
        # between the two on the line through them, beyond them in proportion to the nearer one
        (Reference(1.0, 1.1), Reference(0.2, 0.4), 0.6, 0.75),
        (Reference(1.0, 1.1), Reference(0.2, 0.4), 0.1, 0.2),
        (Reference(1.0, 1.1), Reference(0.2, 0.4), 2.0, 2.2),
        # references that contradict each other: what is measured now counts
        (Reference(1.0, 0.3), Reference(0.2, 0.4), 0.5, 0.15),
    ],
)
def test_a_prediction_is_calibrated_on_what_the_job_really_took(present, calm, other, predicted):
    calibration = Calibration(present, calm)
    assert calibration.predict(other) == pytest.approx(predicted)
    low, high = Calibration(present, calm, (0.9, 1.2)).interval(other)
    assert low <= 0.9 * predicted * (1 + 1e-9)
    assert high >= 1.2 * predicted * (1 - 1e-9)


CORES = ("a", "b", "a", "b")


def test_on_shared_cores_predictions_count_what_the_others_on_a_core_do():
    """Eight micro-batches of 0.06 s on two cores take 0.24 s at least, however many ranks there are."""
    fast = situation({1: 1 / 3}, cores=CORES, resting=frozenset({1}), measured_iteration_s=0.6)
    found = answer(fast, clock)
    assert found.facts["shares_cores"]
    assert "optimal" not in found.facts
    assert found.chosen is not None
    present = found.facts["calibration"]["present"]
    assert found.chosen.iteration_s >= 0.24 * 0.6 / present["simulated_s"]
    low, high = found.chosen.interval_s
    assert low <= found.chosen.iteration_s <= high


def test_what_the_layout_took_in_calm_bounds_what_a_repaired_one_is_said_to_take():
    """A fault that rests hides the neighbours' work; without it that work shows again."""
    calm = (FOUR, 0.5)
    faulty = situation({1: 1 / 3}, cores=CORES, resting=frozenset({1}), measured_iteration_s=0.8, calm=calm)
    found = answer(faulty, clock)
    assert found.chosen is not None
    assert 0.3 <= found.chosen.iteration_s <= 0.8
    assert found.facts["calibration"]["calm"]["measured_s"] == 0.5
