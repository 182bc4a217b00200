"""Comparisons as plain data."""

import json

import numpy as np

from cluster.core.decision import ClusterState, JobView, NodeView, Slice
from cluster.core.fairness.quota import TeamQuota
from cluster.core.requests import gang
from cluster.core.simulator.run import simulate
from cluster.core.simulator.whatif import (
    compare_policies,
    compare_queue,
    confidence,
    preview_difference,
    preview_queue,
    shuffle_arrivals,
    user_fairness,
    utilisation_series,
)
from cluster.core.traces import even_nodes
from cluster.core.workload import job_table

JOBS = job_table(
    ids=[str(n) for n in range(40)],
    submit_s=[10.0 * n for n in range(40)],
    devices=[1 + n % 4 for n in range(40)],
    duration_s=[50.0 + 37 * (n % 7) for n in range(40)],
    users=[f"u{n % 3}" for n in range(40)],
)


def queue_state(**changes) -> ClusterState:
    jobs = (
        JobView("r", gang(4), 0.0, team="a", running=True, started_s=0.0, limit_s=1000.0,
                placement=tuple(Slice("n0", d) for d in range(4))),
        JobView("w", gang(4), 5.0, team="b", limit_s=600.0),
        JobView("v", gang(2), 6.0, team="a", limit_s=100.0),
    )  # fmt: skip
    teams = (TeamQuota("a", guaranteed={"": 2000}), TeamQuota("b", guaranteed={"": 2000}))
    return ClusterState(**{"nodes": (NodeView("n0", 4),), "jobs": jobs, "teams": teams, **changes})


def test_policies_are_compared_on_the_same_jobs_in_json_values():
    rows = compare_policies(JOBS, even_nodes(8), ["fifo", "sjf", "srtf"])
    assert [row["policy"] for row in rows] == ["fifo", "sjf", "srtf"]
    assert all(row["completed"] == 40 for row in rows)
    json.dumps(rows, allow_nan=False)


def test_a_distribution_ends_with_its_largest_value():
    row = compare_policies(JOBS, even_nodes(8), ["fifo"])[0]
    values = list(row["jct_s"].values())
    assert values == sorted(values)
    assert row["jct_s"]["p99"] == row["p99_jct_s"]


def test_users_alone_on_a_large_cluster_are_treated_alike():
    fairness = user_fairness(simulate(JOBS, even_nodes(1000), "fifo"))
    assert fairness == {"jain": 1.0, "worst_slowdown": 1.0, "by_user": {"u0": 1.0, "u1": 1.0, "u2": 1.0}}


def test_utilisation_over_time_adds_up_to_the_work():
    result = simulate(JOBS, even_nodes(8), "fifo")
    series = utilisation_series(result, points=2000)
    figures = result.figures()
    assert abs(np.mean([share for _, share in series]) - figures["gpu_utilisation"]) < 0.01


def test_shuffled_arrivals_are_the_same_jobs_at_the_same_times():
    shuffled = shuffle_arrivals(JOBS, np.random.default_rng(0))
    assert np.array_equal(shuffled.submit_s, JOBS.submit_s)
    assert sorted(shuffled.ids) == sorted(JOBS.ids)
    assert shuffled.ids != JOBS.ids


def test_an_interval_holds_its_mean_and_its_policies_saw_the_same_arrivals():
    table = confidence(JOBS, even_nodes(6), ["fifo", "fifo-skip"], np.random.default_rng(0), replications=4)
    for metrics in table.values():
        for mean, low, high in metrics.values():
            assert low <= mean <= high
    assert (
        confidence(JOBS, even_nodes(6), ["fifo"], np.random.default_rng(0), replications=4)["fifo"]
        == table["fifo"]
    )


def test_a_quota_change_is_previewed_with_who_moves():
    state = queue_state()
    before = preview_queue(state, 700.0, policy="fair")
    teams = (TeamQuota("a", guaranteed={"": 0}), TeamQuota("b", guaranteed={"": 4000}))
    after = preview_queue(state, 700.0, policy="fair", teams=teams)
    # With four guaranteed devices, b takes them back from a at once.
    assert (before["jobs"]["r"]["evictions"], after["jobs"]["r"]["evictions"]) == (0, 1)
    assert after["jobs"]["w"]["start_s"] == 700.0 < before["jobs"]["w"]["start_s"]
    assert [row["job"] for row in preview_difference(before, after)][0] == "w"
    json.dumps([before, after], allow_nan=False)


def test_a_drained_node_strands_what_no_longer_fits():
    preview = preview_queue(queue_state(), 700.0, policy="fifo", without_nodes=["n0"])
    assert set(preview["stranded"]) == {"r", "w", "v"}


def test_the_live_queue_is_compared_under_policies():
    previews = compare_queue(queue_state(), 700.0, ["fifo", "srtf"])
    assert [preview["policy"] for preview in previews] == ["fifo", "srtf"]
    assert all(preview["started"] == 2 for preview in previews)
