"""Time shares on devices of several kinds, and the rounds that realise them."""

import numpy as np
import pytest

from cluster.core.policies.gavel import (
    assign_round,
    blind_shares,
    finish_time_shares,
    makespan_shares,
    max_min_shares,
)
from cluster.core.simulator.heterogeneous import generate_jobs, simulate_kinds
from cluster.core.traces import read_throughputs

ONE = np.array([1, 1])


def test_each_job_gets_the_kind_it_gains_most_from():
    speed = np.array([[4.0, 1.0], [1.0, 1.0]])
    shares = max_min_shares(speed, ONE, ONE, ONE)
    assert shares == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0]]), abs=1e-6)


def test_shares_respect_time_and_devices():
    rng = np.random.default_rng(0)
    speed, devices, workers = rng.uniform(0.1, 9, (20, 3)), rng.choice([1, 2, 4], 20), np.array([6, 5, 4])
    for rule in (max_min_shares, makespan_shares, blind_shares):
        shares = rule(speed, devices, workers, rng.uniform(1, 99, 20))
        assert (shares >= 0).all()
        assert (shares.sum(axis=1) <= 1 + 1e-6).all()
        assert (devices @ shares <= workers + 1e-6).all()


def test_the_least_normalised_throughput_is_no_less_than_blind():
    rng = np.random.default_rng(1)
    speed, devices, workers = rng.uniform(0.1, 9, (12, 3)), rng.choice([1, 2], 12), np.array([3, 3, 3])
    normal = devices / (speed @ (workers / workers.sum()))

    def least(shares: np.ndarray) -> float:
        return float(((shares * speed).sum(axis=1) * normal).min())

    assert least(max_min_shares(speed, devices, workers, devices)) >= least(
        blind_shares(speed, devices, workers, devices)
    )


def test_makespan_shares_end_all_jobs_together_where_they_can():
    speed = np.array([[1.0], [1.0]])
    shares = makespan_shares(speed, ONE, np.array([1]), np.array([30.0, 10.0]))
    assert shares.ravel() == pytest.approx([0.75, 0.25], abs=1e-6)


def test_finish_time_shares_favour_who_is_behind():
    speed = np.array([[1.0], [1.0]])
    shares = finish_time_shares(
        speed, ONE, np.array([1]), np.array([10.0, 10.0]), np.array([0.0, 15.0]), np.array([20.0, 20.0])
    )
    worst = (np.array([0.0, 15.0]) + 10.0 / shares.ravel()) / 20.0
    # 10 / x = 20 r and 15 + 10 / (1 - x) = 20 r meet at x = 1/3, r = 1.5
    assert worst == pytest.approx([1.5, 1.5], abs=0.001)


def test_a_round_gives_devices_to_those_furthest_behind_their_share():
    shares = np.array([[0.5], [0.5]])
    speed, devices, workers = np.ones((2, 1)), ONE, np.array([1])
    assert assign_round(shares, np.array([[3.0], [0.0]]), speed, devices, workers).tolist() == [-1, 0]


def test_no_round_gives_more_than_there_is():
    rng = np.random.default_rng(2)
    for _ in range(20):
        shares, speed = rng.random((9, 2)), rng.uniform(0, 2, (9, 2))
        devices, workers = rng.choice([1, 2, 4], 9), rng.integers(1, 8, 2)
        kind = assign_round(shares, rng.integers(0, 5, (9, 2)).astype(float), speed, devices, workers)
        for number, limit in enumerate(workers):
            assert devices[kind == number].sum() <= limit


def test_knowing_the_kinds_ends_a_batch_much_earlier(shared_dir):
    table = read_throughputs(shared_dir / "traces" / "gavel_throughputs_isolated.csv.gz")
    jobs = generate_jobs(table, 60, np.inf, np.random.default_rng(0))
    workers = np.array([12, 12, 12])
    aware, blind = (
        simulate_kinds(jobs, workers, rule, round_s=3600.0) for rule in (makespan_shares, blind_shares)
    )
    assert blind.makespan_s >= 1.4 * aware.makespan_s
