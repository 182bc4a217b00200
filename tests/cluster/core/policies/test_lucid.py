"""Who may share devices, and what sharing brings."""

import pytest

from cluster.core.policies.lucid import Host, pick_host
from cluster.core.simulator.sharing import simulate_sharing
from cluster.core.traces import even_nodes
from cluster.core.workload import job_table


@pytest.mark.parametrize(
    ("devices", "priority", "keeps", "shares"),
    [
        (1, 50.0, (0.8, 0.7), True),
        (2, 50.0, (0.8, 0.7), False),  # another gang size
        (1, 250.0, (0.8, 0.7), False),  # would outlast its host
        (1, 50.0, (0.6, 0.5), False),  # together not worth it
        (1, 50.0, (1.0, 0.3), False),  # one would crawl
        (1, 50.0, (0.0, 0.0), False),  # not measured
    ],
)
def test_a_job_joins_only_a_host_that_it_does_not_hurt(devices, priority, keeps, shares):
    host = Host(7, 1, 100.0)
    assert pick_host(3, devices, priority, [host], lambda a, b: keeps) == (host if shares else None)


def test_the_best_pair_wins():
    hosts = [Host(0, 1, 100.0), Host(1, 1, 100.0)]
    assert pick_host(3, 1, 10.0, hosts, lambda a, b: (0.7, 0.9 if b else 0.8)) == hosts[1]


def test_two_jobs_on_one_device_run_at_their_shares_and_then_alone():
    jobs = job_table(ids=["a", "b"], submit_s=[0, 0], devices=[1, 1], duration_s=[100, 120])
    shared = simulate_sharing(jobs, even_nodes(1), lambda a, b: (0.5, 0.8))
    # a keeps 0.8 as the host: ends at 125; b has done 62.5 by then and the rest alone.
    assert shared.end_s.tolist() == pytest.approx([125.0, 125.0 + 120 - 62.5])
    alone = simulate_sharing(jobs, even_nodes(1), lambda a, b: (0.0, 0.0))
    assert alone.end_s.tolist() == [100.0, 220.0]


def test_a_job_larger_than_the_cluster_is_refused():
    jobs = job_table(ids=["a", "b"], submit_s=[0, 0], devices=[9, 1], duration_s=[5, 5])
    result = simulate_sharing(jobs, even_nodes(8), lambda a, b: (1.0, 1.0))
    assert (result.refused.tolist(), result.completed().tolist()) == ([0], [1])
