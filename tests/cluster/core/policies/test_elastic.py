"""Goodput and widths of elastic jobs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.policies.goodput import GoodputModel
from cluster.core.policies.pollux import ElasticJob, allocate_widths
from cluster.core.simulator.elastic import ElasticWork, rigid_widths, simulate_elastic

MODEL = GoodputModel(0.05, 0.002, 0.02, 0.002, 0.1, 0.01, 2.0, 500.0, 32, (16, 32, 64, 128))


def test_one_replica_does_not_synchronise():
    assert MODEL.step_s(1, 32, 1) == pytest.approx(0.05 + 0.064)
    assert MODEL.step_s(2, 32, 1) == pytest.approx(((0.114**2) + 0.02**2) ** 0.5)
    assert MODEL.step_s(2, 32, 2) > MODEL.step_s(2, 32, 1)


def test_progress_per_sample_falls_with_the_batch():
    assert MODEL.efficiency(32) == 1.0
    assert MODEL.efficiency(1000) == pytest.approx(532 / 1500)


def test_goodput_never_counts_a_batch_below_the_users_as_more_efficient():
    assert MODEL.goodput(0) == 0.0
    assert MODEL.goodput(1) <= max(batch / MODEL.step_s(1, batch, 1) for batch in MODEL.local_batches)
    assert MODEL.goodput(4) > MODEL.goodput(1)


@given(st.lists(st.tuples(st.integers(1, 2), st.floats(0.3, 1.0)), min_size=1, max_size=3), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_concave_speeds_get_the_best_widths_there_are(rows, devices):
    jobs = [
        ElasticJob(str(n), smallest, 6, lambda width, power=power: width**power)
        for n, (smallest, power) in enumerate(rows)
    ]
    widths = allocate_widths(jobs, devices)
    started = [job for job in jobs if widths[job.name]]
    assert sum(widths.values()) <= devices
    assert all(job.smallest <= widths[job.name] <= job.largest for job in started)

    def cost(choice) -> float:
        return sum(
            job.speed(job.smallest) / job.speed(width) for job, width in zip(started, choice, strict=True)
        )

    options = product(*(range(job.smallest, job.largest + 1) for job in started))
    best = min((cost(choice) for choice in options if sum(choice) <= devices), default=0.0)
    assert cost([widths[job.name] for job in started]) == pytest.approx(best, rel=1e-6)


def test_a_running_job_keeps_its_width_where_the_change_pays_little():
    flat = ElasticJob("flat", 1, 8, lambda width: 1.0 + 0.001 * width, current=2)
    assert allocate_widths([flat], 8) == {"flat": 2}


def test_elastic_widths_end_a_mixed_load_earlier_than_fixed_ones():
    rng = np.random.default_rng(0)
    jobs = [
        ElasticWork(str(n), float(900 * n), float(rng.uniform(1e6, 4e6)), 1, 16, MODEL.goodput)
        for n in range(20)
    ]
    elastic = simulate_elastic(jobs, 16)
    rigid = simulate_elastic(jobs, 16, rigid_widths({job.name: 8 for job in jobs}))
    submit = np.array([job.submit_s for job in jobs])
    assert np.isfinite(elastic).all()
    assert (elastic - submit).mean() < 0.9 * (rigid - submit).mean()


def test_a_job_wider_than_the_cluster_never_ends():
    assert simulate_elastic([ElasticWork("a", 0.0, 1.0, 9, 9, float)], 8).tolist() == [np.inf]
