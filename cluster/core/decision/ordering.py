"""The queue's order: overdue jobs, then classes, then the policy; and the columns policies read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.core.decision.promises import is_promised
from cluster.core.decision.state import ClusterState, JobView
from cluster.core.fairness.tree import Account, fair_ranks
from cluster.core.policies.interface import Policy
from cluster.core.requests import total_devices
from cluster.core.workload import ANY_KIND, IntColumn, JobTable

# For jobs that declare nothing, policies that need a run time believe this one.
UNKNOWN_RUNTIME_S = 24 * 3600.0


def waited_s(job: JobView, now: float) -> float:
    """Return how long a job has been in the system; never negative, whatever the clocks did."""
    return max(0.0, now - job.submitted_s)


def is_overdue(state: ClusterState, job: JobView, now: float) -> bool:
    """Whether a waiting job has waited past the bound."""
    return not job.running and waited_s(job, now) - job.executed_s >= state.settings.bounded_wait_s


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """Jobs in the order in which they are considered.

    Attributes:
        kinds: by job, kinds to try, best first, where the policy has a say in it.
        declined: jobs that should not start now, whatever is free.
        remaining_s: by job, the run time that is believed to be left.
    """

    jobs: list[JobView]
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    declined: frozenset[str] = frozenset()
    remaining_s: Mapping[str, float] = field(default_factory=dict)


def queue_order(state: ClusterState, jobs: Sequence[JobView], policy: Policy, now: float) -> QueueOrder:
    """Return jobs in the order in which they are considered, and what the policy says beside it."""
    by_arrival = sorted(jobs, key=lambda job: (job.submitted_s, job.id))
    table = table_of(state, by_arrival, now)
    if policy.reads_kinds:
        add_kinds(table, state, by_arrival, now)
    if policy.sizes:
        add_units(table, by_arrival)
    rows = np.arange(len(by_arrival), dtype=np.int64)
    policy.review(table, rows, now)
    ranked = [by_arrival[row] for row in policy.order(table, rows, now).tolist()]
    promised: set[str] = set()
    if policy.promises:
        promised = {job.id for job in by_arrival if is_promised(job, now)}
    overdue = {job.id for job in by_arrival if is_overdue(state, job, now)} - promised
    first = [job for job in ranked if job.id in promised]
    first += [job for job in by_arrival if job.id in overdue]
    others = [job for job in ranked if job.id not in overdue and job.id not in promised]
    others.sort(key=lambda job: -job.job_class)
    return QueueOrder(
        first + others,
        _kinds(policy, table, rows) if policy.reads_kinds else {},
        _declined(policy, table, rows) if policy.sizes else frozenset(),
        dict(zip(table.ids, table.remaining_s.tolist(), strict=True)) if policy.shares else {},
    )


def _kinds(policy: Policy, table: JobTable, rows: IntColumn) -> dict[str, tuple[str, ...]]:
    wanted = policy.kinds(table, rows).tolist()
    return {
        table.ids[row]: tuple(table.kinds[kind] for kind in kinds if kind >= 0)
        for row, kinds in zip(rows.tolist(), wanted, strict=True)
    }


def _declined(policy: Policy, table: JobTable, rows: IntColumn) -> frozenset[str]:
    return frozenset(table.ids[row] for row in rows[policy.declined(table, rows)].tolist())


def add_kinds(table: JobTable, state: ClusterState, jobs: Sequence[JobView], now: float) -> None:
    """Fill the columns about kinds of devices."""
    kind_at = {node.name: node.kind for node in state.nodes}
    code = {kind: number for number, kind in enumerate(table.kinds)}
    table.workers = np.zeros(len(code), dtype=np.int64)
    for node in state.nodes:
        table.workers[code[node.kind]] += node.devices - len(node.unusable)
    table.speed = np.zeros((len(jobs), len(code)))
    table.received_s = np.zeros((len(jobs), len(code)))
    table.on_kind = np.full(len(jobs), -1, dtype=np.int64)
    table.unit = np.array([job.unit for job in jobs], dtype=np.int64)
    for row, job in enumerate(jobs):
        speeds, received = dict(job.speeds), dict(job.received)
        if job.running and job.placement:
            here = kind_at.get(job.placement[0].node, "")
            table.on_kind[row] = code.get(here, -1)
            received[here] = received.get(here, 0.0) + max(0.0, now - (job.started_s or now))
        for kind, number in code.items():
            may = (not job.kinds or kind in job.kinds) and (not job.pin or kind_at.get(job.pin) == kind)
            table.speed[row, number] = speeds.get(kind, 1.0) if may else 0.0
            table.received_s[row, number] = received.get(kind, 0.0)


def add_units(table: JobTable, jobs: Sequence[JobView]) -> None:
    """Fill the columns that say which rows are devices of the same elastic job."""
    codes: dict[str, int] = {}
    table.unit = np.array([job.unit for job in jobs], dtype=np.int64)
    table.job = np.zeros(len(jobs), dtype=np.int64)
    for row, job in enumerate(jobs):
        name = job.id.rpartition("/")[0] if job.unit else job.id
        table.job[row] = codes.setdefault(name, len(codes))
        if len(codes) > len(table.speedups):
            table.speedups.append(job.speedup)


def table_of(state: ClusterState, jobs: Sequence[JobView], now: float) -> JobTable:
    """Return jobs, sorted by arrival, as the columns a policy reads."""
    fair = fair_places(state, jobs)
    kinds = {kind: code for code, kind in enumerate(dict.fromkeys(node.kind for node in state.nodes))}
    owners = list(dict.fromkeys(_owner(job) for job in jobs))
    owner_code = {owner: code for code, owner in enumerate(owners)}
    teams = list(dict.fromkeys(job.team for job in jobs))
    ran = [
        max(0.0, now - job.started_s) if job.running and job.started_s is not None else 0.0 for job in jobs
    ]
    devices = [total_devices(job.tasks) for job in jobs]
    remaining = [_remaining_s(job, run) for job, run in zip(jobs, ran, strict=True)]
    executed = [job.executed_s + run for job, run in zip(jobs, ran, strict=True)]

    def column(values: Sequence[float]) -> np.ndarray:
        return np.array(values, dtype=np.float64)

    return JobTable(
        ids=[job.id for job in jobs],
        submit_s=column([min(job.submitted_s, now) for job in jobs]),
        devices=np.array(devices, dtype=np.int64),
        duration_s=column([e + r for e, r in zip(executed, remaining, strict=True)]),
        limit_s=column([math.inf if job.limit_s is None else job.limit_s for job in jobs]),
        deadline_s=column([math.inf if job.deadline_s is None else job.deadline_s for job in jobs]),
        kind=np.array(
            [kinds.get(job.kinds[0], ANY_KIND) if job.kinds else ANY_KIND for job in jobs], dtype=np.int64
        ),
        user=np.array([owner_code[_owner(job)] for job in jobs], dtype=np.int64),
        team=np.array([teams.index(job.team) for job in jobs], dtype=np.int64),
        rank_class=np.array([job.job_class for job in jobs], dtype=np.int64),
        fair_rank=column([-fair[_owner(job)] for job in jobs]),
        remaining_s=column(remaining),
        attained_device_s=column(
            [job.attained_device_s + r * d for job, r, d in zip(jobs, ran, devices, strict=True)]
        ),
        executed_s=column(executed),
        waiting_since_s=column([min(job.submitted_s, now) for job in jobs]),
        started_s=column([math.nan if job.started_s is None else job.started_s for job in jobs]),
        refreshed_s=np.full(len(jobs), now),
        level=np.zeros(len(jobs), dtype=np.int64),
        promoted_device_s=np.zeros(len(jobs)),
        running=np.array([job.running for job in jobs], dtype=np.bool_),
        kinds=list(kinds),
        users=owners,
        teams=teams,
    )


def fair_places(state: ClusterState, jobs: Sequence[JobView]) -> dict[str, float]:
    """Return the fair factor of every owner among the jobs, 1 for the first in line."""
    owners = dict.fromkeys(_owner(job) for job in jobs)
    known = {team.name for team in state.teams}
    strangers = dict.fromkeys(job.team for job in jobs if job.team not in known)
    accounts = [
        Account(_team(team.name), _team(team.parent) if team.parent else "", team.shares)
        for team in state.teams
    ]
    accounts += [Account(_team(name)) for name in strangers]
    accounts += [
        Account(
            owner, _team(owner.split("/", 1)[0]), state.user_shares.get(owner, 1), state.usage.get(owner, 0.0)
        )
        for owner in owners
    ]
    return fair_ranks(accounts)


def _owner(job: JobView) -> str:
    return f"{job.team}/{job.user}"


def _team(name: str) -> str:
    # Apart from every user's key, which has a slash after the team.
    return f"team:{name}"


def _remaining_s(job: JobView, ran_s: float) -> float:
    if job.expected_s is not None:
        return max(0.0, job.expected_s[1] - ran_s) if not job.running else job.expected_s[1]
    if job.limit_s is not None:
        return max(0.0, job.limit_s - job.executed_s - ran_s)
    return UNKNOWN_RUNTIME_S
