"""At submission: refuse what can never run, and say what would."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.core.decision.promises import bound_s, is_promised
from cluster.core.decision.reasons import Obstacle, Reason, devices_text
from cluster.core.decision.round import Round, idle_pool, never_fits
from cluster.core.decision.state import ClusterState, JobView
from cluster.core.fairness.quota import QuotaBook
from cluster.core.placement.pool import NodePool, Slots
from cluster.core.placement.rules import PLACEMENTS
from cluster.core.policies.deadline import Promise, earliest_deadline, plan_in_order
from cluster.core.requests import MILLI, total_devices, total_milli


@dataclass(frozen=True, slots=True)
class DeadlineAnswer:
    """Whether a deadline can be promised; `earliest_s` is the earliest one that could be (absolute)."""

    accepted: bool
    earliest_s: float | None
    message: str


def refusal(state: ClusterState, job: JobView) -> Obstacle | None:
    """Return why a job can never run on this cluster with these quotas, or None where it can."""
    idle = idle_pool(state)
    obstacle = never_fits(idle, job)
    if obstacle is not None:
        return obstacle
    if any(team.name == job.team for team in state.teams) or not state.teams:
        return _over_ceiling(state, job)
    return Obstacle(Reason.UNSATISFIABLE, f"there is no team {job.team!r}")


def _over_ceiling(state: ClusterState, job: JobView) -> Obstacle | None:
    capacity: dict[str, int] = {}
    for node in state.nodes:
        capacity[node.kind] = capacity.get(node.kind, 0) + node.devices * MILLI
    book = QuotaBook(state.teams, capacity)
    needed = total_milli(job.tasks)
    ceiling = max((book.ceiling(job.team, kind) for kind in job.kinds or capacity), default=0)
    if not needed or needed <= ceiling:
        return None
    team, most = job.team or "the team", devices_text(ceiling)
    message = f"needs {devices_text(needed)}, {team} may never hold more than {most}"
    return Obstacle(Reason.QUOTA_CEILING, message, {"needed_milli": needed, "ceiling_milli": ceiling})


def deadline_answer(state: ClusterState, job: JobView, now: float) -> DeadlineAnswer:
    """Return whether a job's deadline can be kept beside all that are promised already.

    Promised are the jobs that have a deadline and a limit. They go in order of their deadlines and before all
    others, which give way; the plan takes every limit as the run time, so that nothing but a fault breaks it.
    """
    if job.deadline_s is None:
        return DeadlineAnswer(True, None, "no deadline is asked for")
    if bound_s(job, now) is None:
        return DeadlineAnswer(False, None, "a deadline needs limit_s, the most the job will run")
    pool, running = _promised_devices(state, now)
    place = PLACEMENTS[state.settings.placement]
    queue = sorted(
        _promise(other, row, now, pool, state)
        for row, other in enumerate(state.jobs)
        if not other.running and is_promised(other, now) and other.id != job.id
    )
    queue = _on_time(pool, running, queue, now, state)
    wanted = _promise(job, len(state.jobs), now, pool, state)
    if plan_in_order(pool, running, sorted([*queue, wanted]), now, place) is not None:
        return DeadlineAnswer(True, job.deadline_s, "the deadline is kept beside all that are promised")
    if wanted.devices > pool.total:
        return DeadlineAnswer(False, None, f"needs {wanted.devices} devices, the cluster has {pool.total}")
    earliest = earliest_deadline(pool, running, queue, wanted, now, place)
    finite = earliest if earliest < float("inf") else None
    return DeadlineAnswer(False, finite, "the deadline cannot be kept beside those that are promised")


def _promised_devices(state: ClusterState, now: float) -> tuple[NodePool, list[tuple[float, Slots]]]:
    """Return whole devices not held by promised jobs, and when those that are come back."""
    round_ = Round(state, now)
    devices = round_.pool
    pool = NodePool(
        [
            sum(devices.usable[first : first + node.devices])
            for first, node in zip(devices.first, devices.nodes, strict=True)
        ]
    )
    running: list[tuple[float, Slots]] = []
    for job in round_.running.values():
        left_s = bound_s(job, now)
        if left_s is None or not is_promised(job, now):
            continue
        held: dict[int, int] = {}
        for piece in job.placement:
            node = round_.pool.number[piece.node]
            held[node] = held.get(node, 0) + 1
        slots = [(node, min(count, pool.free[node])) for node, count in held.items() if pool.free[node]]
        pool.take_all(slots)
        running.append((now + left_s, slots))
    return pool, running


def _promise(job: JobView, row: int, now: float, pool: NodePool, state: ClusterState) -> Promise:
    allowed = -1
    if job.kinds or job.pin:
        allowed = sum(
            1 << number
            for number, node in enumerate(state.nodes)
            if (not job.kinds or node.kind in job.kinds) and job.pin in ("", node.name)
        )
    return Promise(job.deadline_s or 0.0, row, bound_s(job, now) or 0.0, total_devices(job.tasks), allowed)


def _on_time(
    pool: NodePool,
    running: Sequence[tuple[float, Slots]],
    queue: Sequence[Promise],
    now: float,
    state: ClusterState,
) -> list[Promise]:
    """Return the promises that still can be kept; one that a fault has broken binds nobody any more."""
    kept: list[Promise] = []
    for promise in queue:
        if (
            plan_in_order(pool, running, [*kept, promise], now, PLACEMENTS[state.settings.placement])
            is not None
        ):
            kept.append(promise)
    return kept
