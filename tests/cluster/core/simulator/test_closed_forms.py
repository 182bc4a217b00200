"""Queues whose answers are known."""

import heapq

import numpy as np
import pytest

from cluster.core.simulator.run import simulate
from cluster.core.traces import even_nodes
from cluster.core.workload import JobTable, job_table
from forebay.cli.bench.schedule_cases import erlang_c_wait


def poisson(count: int, servers: int, load: float, seed: int) -> JobTable:
    rng = np.random.default_rng(seed)
    return job_table(
        ids=[str(number) for number in range(count)],
        submit_s=np.cumsum(rng.exponential(1 / (servers * load), count)).tolist(),
        devices=[1] * count,
        duration_s=rng.exponential(1.0, count).tolist(),
    )


def waits_by_recursion(jobs: JobTable, servers: int) -> list[float]:
    """Kiefer and Wolfowitz: each job takes the server that is free first."""
    free = [0.0] * servers
    waits = []
    for submit, service in zip(jobs.submit_s.tolist(), jobs.duration_s.tolist(), strict=True):
        start = max(submit, heapq.heappop(free))
        waits.append(start - submit)
        heapq.heappush(free, start + service)
    return waits


@pytest.mark.parametrize("servers", [1, 3, 8])
def test_first_in_first_out_is_the_exact_recursion(servers):
    jobs = poisson(3000, servers, 0.9, seed=servers)
    result = simulate(jobs, even_nodes(servers), "fifo")
    assert np.allclose(result.queue_s(), waits_by_recursion(jobs, servers), atol=1e-6)


def test_the_mean_wait_is_erlang_c():
    seeds = range(3)
    waits = [
        simulate(poisson(20_000, 4, 0.5, seed), even_nodes(4), "fifo").figures()["avg_queue_s"]
        for seed in seeds
    ]
    assert np.mean(waits) == pytest.approx(erlang_c_wait(4, 0.5), rel=0.08)


def test_erlang_c_of_one_server_is_the_textbook_value():
    assert erlang_c_wait(1, 0.5) == pytest.approx(1.0)
    assert erlang_c_wait(2, 0.5) == pytest.approx(1 / 3)


def test_one_server_is_done_at_the_same_time_whatever_the_order():
    jobs = poisson(2000, 1, 0.9, seed=5)
    policies = ("fifo", "sjf", "backfill", "srtf", "las", "gittins")
    ends = [simulate(jobs, even_nodes(1), policy).end_s.max() for policy in policies]
    assert np.ptp(ends) < 1e-6


def test_size_blind_orders_have_the_same_mean_wait():
    jobs = poisson(12_000, 1, 0.6, seed=9)
    rng = np.random.default_rng(1)
    fifo = simulate(jobs, even_nodes(1), "fifo").figures()["avg_queue_s"]
    lottery = simulate(with_lottery(jobs, rng), even_nodes(1), "edf").figures()["avg_queue_s"]
    assert lottery == pytest.approx(fifo, rel=0.15)


def with_lottery(jobs: JobTable, rng: np.random.Generator) -> JobTable:
    """Deadlines drawn blindly make earliest-deadline-first a random order."""
    return job_table(
        ids=jobs.ids,
        submit_s=jobs.submit_s.tolist(),
        devices=jobs.devices.tolist(),
        duration_s=jobs.duration_s.tolist(),
        deadline_s=(1e6 + 1e6 * rng.random(len(jobs))).tolist(),
    )


def test_shortest_remaining_time_has_the_least_mean_completion():
    jobs = poisson(3000, 1, 0.9, seed=2)
    means = {
        policy: simulate(jobs, even_nodes(1), policy).figures()["avg_jct_s"]
        for policy in ("fifo", "sjf", "srtf", "las")
    }
    assert min(means, key=means.__getitem__) == "srtf"
