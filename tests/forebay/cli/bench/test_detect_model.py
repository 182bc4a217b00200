"""Errors of the workload model, of a run that the test writes itself and of a real one."""

import pytest

from forebay.cli.bench.detect_model import MICROBATCHES, errors, real_run


def rows(late: float = 1.0) -> dict[tuple[int, int], list[float]]:
    """Twenty iterations of four micro-batches whose time is linear in their work; `late` is a factor."""
    found = {}
    for step in range(20):
        for number in range(4):
            tokens, sum_sq = 500.0 + 7 * ((5 * step + 3 * number) % 11), 9e4 + 4e3 * ((step + 2 * number) % 7)
            seconds = 0.01 + 1e-5 * tokens + 1e-8 * sum_sq
            found[step, number] = [tokens, sum_sq, seconds * (late if step >= 10 else 1.0)]
    return found


def test_a_model_that_holds_is_off_by_nothing() -> None:
    found = errors(rows())
    assert found["microbatch_mape"] < 1e-6
    assert found["iteration_mape"] < 1e-6


def test_the_second_half_of_a_run_is_told_by_its_first() -> None:
    assert errors(rows(late=1.25))["iteration_mape"] == pytest.approx(0.2, abs=1e-3)


def test_a_real_run_is_measured_stage_by_stage() -> None:
    found = real_run(12)
    assert len(found) == 2
    assert all(row["microbatches"] >= 12 * MICROBATCHES for row in found)
    assert all(row["iteration_mape"] > 0 for row in found)
