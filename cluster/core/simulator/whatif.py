"""What if: policies compared on a trace or on the live queue, as plain data for pages and tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cluster.core.decision.predictions import runtime_interval
from cluster.core.decision.state import ClusterState, JobView
from cluster.core.fairness.division import jain_index
from cluster.core.fairness.quota import TeamQuota
from cluster.core.policies import live_policy
from cluster.core.simulator.rehearsal import Rehearsal, Watch, pace_of_view, rehearse
from cluster.core.simulator.result import SimulationResult, nearest_rank
from cluster.core.simulator.run import simulate
from cluster.core.traces.nodes import NodeSpec
from cluster.core.workload import FloatColumn, JobTable, job_table

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
CONFIDENCE_METRICS = ("avg_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s", "gpu_utilisation")


def compare_policies(
    jobs: JobTable, nodes: Sequence[NodeSpec], policies: Sequence[str], *, placement: str = "consolidated"
) -> list[dict[str, Any]]:
    """Return for each policy its figures, distributions and fairness on one trace."""
    return [describe(simulate(jobs, nodes, name, placement=placement)) for name in policies]


def describe(result: SimulationResult) -> dict[str, Any]:
    """Return a result's figures, the distributions of completion and queueing, and fairness."""
    return {
        "policy": result.policy,
        **result.figures(),
        "jct_s": distribution(result.completion_s()),
        "queue_s": distribution(result.queue_s()),
        "fairness": user_fairness(result),
        "utilisation": utilisation_series(result),
    }


def distribution(values: FloatColumn) -> dict[str, float | None]:
    """Return quantiles by nearest rank, and the largest value."""
    row = {f"p{round(100 * share)}": nearest_rank(values, share) for share in QUANTILES}
    return {**row, "max": float(values.max()) if len(values) else None}


def user_fairness(result: SimulationResult) -> dict[str, Any]:
    """Return each user's mean slowdown (run times under a minute count as one) and Jain's index."""
    rows = result.completed()
    slowdown = result.completion_s() / np.maximum(result.jobs.duration_s[rows], 60.0)
    slowdown = np.maximum(slowdown, 1.0)
    means = {
        name: float(slowdown[result.jobs.user[rows] == code].mean())
        for code, name in enumerate(result.jobs.users)
        if (result.jobs.user[rows] == code).any()
    }
    return {
        "jain": jain_index(list(means.values())) if means else None,
        "worst_slowdown": max(means.values(), default=None),
        "by_user": means,
    }


def utilisation_series(result: SimulationResult, points: int = 100) -> list[tuple[float, float]]:
    """Return (seconds since the first submission, share of devices in use) at even times.

    A job that was stopped counts from its first start to its end spread evenly, since only totals are kept.
    """
    rows = result.completed()
    rows = rows[result.jobs.devices[rows] > 0]
    if not len(rows):
        return []
    first = float(result.jobs.submit_s[rows].min())
    start, end = result.start_s[rows], result.end_s[rows]
    span = np.maximum(end - start, 1e-9)
    weight = result.jobs.devices[rows] * np.minimum(result.jobs.duration_s[rows] / span, 1.0) / result.devices
    edges = np.linspace(first, float(end.max()), points + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    up, down = np.argsort(start), np.argsort(end)
    begun = np.concatenate([[0.0], np.cumsum(weight[up])])[np.searchsorted(start[up], middle, side="right")]
    done = np.concatenate([[0.0], np.cumsum(weight[down])])[np.searchsorted(end[down], middle, side="right")]
    return [
        (float(time - first), float(max(0.0, share)))
        for time, share in zip(middle, begun - done, strict=True)
    ]


def confidence(
    jobs: JobTable,
    nodes: Sequence[NodeSpec],
    policies: Sequence[str],
    rng: np.random.Generator,
    *,
    replications: int = 10,
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Return for each policy and metric (mean, low, high) of a 95 % interval over arrivals.

    Each replication keeps the arrival times and shuffles which job comes when, the same for every policy.
    """
    samples: dict[str, dict[str, list[float]]] = {
        name: {m: [] for m in CONFIDENCE_METRICS} for name in policies
    }
    for _ in range(replications):
        shuffled = shuffle_arrivals(jobs, rng)
        for name in policies:
            figures = simulate(shuffled, nodes, name).figures()
            for metric in CONFIDENCE_METRICS:
                if figures[metric] is not None:
                    samples[name][metric].append(figures[metric])
    return {
        name: {metric: _interval(values) for metric, values in metrics.items() if values}
        for name, metrics in samples.items()
    }


def shuffle_arrivals(jobs: JobTable, rng: np.random.Generator) -> JobTable:
    """Return the same jobs in another order over the same arrival times; deadlines keep their length."""
    order = rng.permutation(len(jobs))
    return job_table(
        ids=[jobs.ids[row] for row in order],
        submit_s=jobs.submit_s.tolist(),
        devices=jobs.devices[order].tolist(),
        duration_s=jobs.duration_s[order].tolist(),
        limit_s=jobs.limit_s[order].tolist(),
        deadline_s=(jobs.submit_s + (jobs.deadline_s - jobs.submit_s)[order]).tolist(),
        kinds=[jobs.kinds[code] if code >= 0 else "" for code in jobs.kind[order].tolist()],
        users=[jobs.users[code] for code in jobs.user[order].tolist()],
    )


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    from scipy.stats import t

    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    half = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def preview_queue(
    state: ClusterState,
    now: float,
    *,
    policy: str,
    teams: Sequence[TeamQuota] | None = None,
    without_nodes: Sequence[str] = (),
    until_s: float = math.inf,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Play the live queue forward under another policy, other quotas or fewer nodes.

    Run times are the middle of what is believed; nothing new is submitted.

    Returns:
        `jobs`: for each id its start, end and evictions; `mean_wait_s` of the jobs that wait now; `stranded`;
        `device_s` by team.
    """
    nodes = tuple(replace(n, state="draining") if n.name in without_nodes else n for n in state.nodes)
    changed = replace(state, nodes=nodes, teams=state.teams if teams is None else tuple(teams))
    kinds = {node.name: node.kind for node in nodes}
    runtimes = {job.id: _believed_s(job, now, kinds) for job in state.jobs}
    capacity = sum(node.devices for node in nodes)
    outcome = rehearse(
        changed, live_policy(policy, capacity), runtimes, now=now, until_s=until_s, watch=watch
    )
    waiting = [job.id for job in state.jobs if not job.running]
    waits = [outcome.starts_s[name] - now for name in waiting if name in outcome.starts_s]
    by_team: dict[str, float] = {}
    for (team, _), seconds in outcome.device_s.items():
        by_team[team] = by_team.get(team, 0.0) + seconds
    ends = [outcome.ends_s[job.id] - job.submitted_s for job in state.jobs if job.id in outcome.ends_s]
    busy = sum(outcome.device_s.values())
    last_s = max([now, *outcome.ends_s.values()])
    return {
        "policy": policy,
        "utilisation": busy / (capacity * (last_s - now)) if capacity and last_s > now else None,
        "fairness": _team_fairness(state, outcome, runtimes),
        "wait_s": distribution(np.array(waits)),
        "jct_s": distribution(np.array(ends)),
        "mean_jct_s": sum(ends) / len(ends) if ends else None,
        "makespan_s": max(outcome.ends_s.values(), default=now) - now,
        "jobs": {
            job.id: {
                "start_s": outcome.starts_s.get(job.id),
                "end_s": outcome.ends_s.get(job.id),
                "evictions": outcome.evictions.get(job.id, 0),
            }
            for job in state.jobs
        },
        "mean_wait_s": sum(waits) / len(waits) if waits else None,
        "started": len(waits),
        "evictions": sum(outcome.evictions.values()),
        "stranded": outcome.stranded,
        "device_s": by_team,
    }


def _team_fairness(state: ClusterState, outcome: Rehearsal, runtimes: Mapping[str, float]) -> float | None:
    """Return Jain's index of the teams' mean slowdowns (run times under a minute count as one)."""
    slowdowns: dict[str, list[float]] = {}
    for job in state.jobs:
        if job.id in outcome.ends_s:
            took = outcome.ends_s[job.id] - job.submitted_s
            slowdowns.setdefault(job.team, []).append(max(1.0, took / max(runtimes[job.id], 60.0)))
    means = [sum(values) / len(values) for values in slowdowns.values()]
    return jain_index(means) if means else None


def compare_queue(state: ClusterState, now: float, policies: Sequence[str]) -> list[dict[str, Any]]:
    """Return previews of the live queue under several policies."""
    return [preview_queue(state, now, policy=name) for name in policies]


def preview_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs whose start moves between two previews, largest move first."""
    moved = []
    for name, old in before["jobs"].items():
        new = after["jobs"].get(name, {})
        if old["start_s"] != new.get("start_s") and None not in (old["start_s"], new.get("start_s")):
            moved.append({"job": name, "before_s": old["start_s"], "after_s": new["start_s"]})
    return sorted(moved, key=lambda row: -abs(row["after_s"] - row["before_s"]))


def _believed_s(job: JobView, now: float, kinds: Mapping[str, str]) -> float:
    """Return the whole work that is believed, what has been run included, in seconds at full speed."""
    ran = max(0.0, now - job.started_s) if job.running and job.started_s is not None else 0.0
    _, middle, _ = runtime_interval(job, now)
    pace = pace_of_view(job, kinds) if job.running else 1.0
    return float(job.executed_s + ran + max(middle, 1.0) * pace)
