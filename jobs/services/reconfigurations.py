"""The doors through which a reconfiguration's state changes.

Every door locks the job first and the reconfiguration second, so that two decisions never meet.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster.core.roles import Permission, allows
from cluster.models import User
from cluster.queries import role_in
from jobs.core.errors import (
    IllegalReconfiguration,
    JobMovedOn,
    MayNotDecide,
    OwnRequest,
    PlanExpired,
    StaleVersion,
)
from jobs.core.reconfiguration import plan_digest
from jobs.core.states import PENDING, JobState, ReconfigurationState, can_reconfigure
from jobs.models import Job, Reconfiguration, TrainingRun
from journal.services import Fact, audit, record, ring

EXECUTE = "recovery.execute"
RECOVERY_QUEUE = "recovery"
State = ReconfigurationState
# What an approval costs a person, plus a coffee; afterwards the measurements are too old to act on.
OPEN_FOR = timedelta(minutes=60)


@dataclass(frozen=True)
class Proposal:
    """What the planner found for a job: everything that a person decides on."""

    kind: str
    epoch: int
    before: dict[str, Any]
    plan: dict[str, Any]
    baseline_iteration_s: float | None
    predicted_iteration_s: float
    predicted_pause_s: float
    moved_bytes: int = 0
    needs_checkpoint: bool = False
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    verdict_id: UUID | None = None


@transaction.atomic
def propose(
    *, job_id: UUID, proposal: Proposal, by_policy: bool, open_for: timedelta = OPEN_FOR
) -> Reconfiguration:
    """Propose a plan in the name of the job's owner; what was pending before is superseded.

    The same plan for the same epoch is proposed once. With `by_policy` it is approved at once.
    """
    job = Job.objects.select_for_update(of=("self",)).select_related("owner").get(pk=job_id)
    digest = plan_digest(proposal.epoch, proposal.before, proposal.plan)
    pending = _pending(job)
    if pending is not None and pending.plan_digest == digest:
        return pending
    if pending is not None:
        _move(pending, job, State.SUPERSEDED, reason="another plan takes its place")
    _check_current(job, proposal.epoch, proposal.before)
    fields = {name: getattr(proposal, name) for name in Proposal.__dataclass_fields__}
    row = Reconfiguration.objects.create(
        job=job,
        requester=job.owner,
        plan_digest=digest,
        expires_at=timezone.now() + open_for,
        **fields,
    )
    _tell(row, job, "proposed")
    audit(actor="recovery loop", action="reconfiguration.propose", target=_target(row),
          team_id=job.team_id, detail={"kind": row.kind, "plan_digest": digest})  # fmt: skip
    if by_policy:
        row.by_policy = True
        _decide(
            row, job, State.APPROVED, actor="policy", reason=f"the job's policy lets a {row.kind} through"
        )
    return row


@transaction.atomic
def approve(
    *,
    reconfiguration_id: UUID,
    approver: User,
    actor: str,
    seen_version: int | None = None,
    comment: str = "",
    break_glass: str = "",
) -> Reconfiguration:
    """Approve a plan as somebody else than its requester; the job is told by the task that executes it.

    `break_glass` says why the requester must approve alone. Raises MayNotDecide, StaleVersion, OwnRequest,
    PlanExpired, JobMovedOn or IllegalReconfiguration.
    """
    row, job = _lock(reconfiguration_id, seen_version)
    _check_role(job, approver)
    _check_move(row, State.APPROVED)
    if row.expires_at <= timezone.now():
        raise PlanExpired(row.expires_at.isoformat())
    if row.requester_id == approver.pk and not break_glass.strip():
        raise OwnRequest
    _check_current(job, row.epoch, row.before)
    row.approver = approver
    row.comment = comment.strip()[:1000]
    if row.requester_id == approver.pk:
        row.break_glass = break_glass.strip()[:1000]
    _decide(row, job, State.APPROVED, actor=actor, reason="")
    return row


@transaction.atomic
def reject(
    *,
    reconfiguration_id: UUID,
    approver: User,
    actor: str,
    seen_version: int | None = None,
    comment: str = "",
) -> Reconfiguration:
    """Reject a plan, also one's own. The job stays as it is."""
    row, job = _lock(reconfiguration_id, seen_version)
    _check_role(job, approver)
    _check_move(row, State.REJECTED)
    row.approver = approver
    row.comment = comment.strip()[:1000]
    _decide(row, job, State.REJECTED, actor=actor, reason=row.comment)
    return row


@transaction.atomic
def expire(*, reconfiguration_id: UUID, now: datetime | None = None) -> bool:
    """Close a plan that nobody decided on, or executed, in time; return whether it was one."""
    row, job = _lock(reconfiguration_id)
    if not can_reconfigure(State(row.state), State.EXPIRED) or row.expires_at > (now or timezone.now()):
        return False
    waited = "executed" if row.state == State.APPROVED else "decided on"
    _move(row, job, State.EXPIRED, reason=f"it was not {waited} in time")
    return True


def expire_due() -> int:
    """Close every plan whose time is over."""
    due = Reconfiguration.objects.filter(
        state__in=[State.PROPOSED, State.APPROVED], expires_at__lte=timezone.now()
    ).values_list("pk", flat=True)
    return sum(expire(reconfiguration_id=pk) for pk in list(due))


@transaction.atomic
def supersede(*, job_id: UUID, reason: str) -> Reconfiguration | None:
    """Close what is pending for a job, for its plan no longer fits; None if nothing was."""
    job = Job.objects.select_for_update().get(pk=job_id)
    row = _pending(job)
    if row is not None:
        _move(row, job, State.SUPERSEDED, reason=reason)
    return row


@transaction.atomic
def begin(*, reconfiguration_id: UUID) -> Reconfiguration | None:
    """Start executing an approved plan, checked once more against the job as it is now.

    Call it in the transaction that is fenced by the driver's lease. None where the job has moved on, the
    plan was altered or its time is over: then it is superseded or expired, with the reason.
    """
    row, job = _lock(reconfiguration_id)
    if row.state != State.APPROVED:
        return None
    if row.expires_at <= timezone.now():
        _move(row, job, State.EXPIRED, reason="it was not executed in time")
        return None
    try:
        _check_current(job, row.epoch, row.before)
        if row.plan_digest != plan_digest(row.epoch, row.before, row.plan):
            raise JobMovedOn("the plan is not the one that was approved")
    except JobMovedOn as error:
        _move(row, job, State.SUPERSEDED, reason=str(error))
        return None
    row.started_at = timezone.now()
    _move(row, job, State.EXECUTING)
    return row


@transaction.atomic
def execute_done(*, reconfiguration_id: UUID, outcome: dict[str, Any]) -> Reconfiguration:
    """Record that the job runs in the new layout, and what that took (seconds by phase, the pause)."""
    row, job = _lock(reconfiguration_id)
    row.outcome = outcome
    _move(row, job, State.EXECUTED)
    return row


@transaction.atomic
def execute_failed(*, reconfiguration_id: UUID, reason: str, outcome: dict[str, Any] | None = None) -> None:
    """Record that the job could not be brought into the new layout; it goes on as the reason says."""
    row, job = _lock(reconfiguration_id)
    if row.state == State.EXECUTING:
        row.outcome = outcome or {}
        _move(row, job, State.FAILED, reason=reason)


@transaction.atomic
def record_outcome(*, reconfiguration_id: UUID, measured: dict[str, Any]) -> None:
    """Add what was measured after an executed plan, to be held against its prediction."""
    row, job = _lock(reconfiguration_id)
    row.outcome = {**row.outcome, **measured}
    row.version += 1
    row.save(update_fields=["outcome", "version"])
    _tell(row, job, "measured")


def _lock(reconfiguration_id: UUID, seen_version: int | None = None) -> tuple[Reconfiguration, Job]:
    job_id = Reconfiguration.objects.values_list("job_id", flat=True).get(pk=reconfiguration_id)
    job = Job.objects.select_for_update().get(pk=job_id)
    row = Reconfiguration.objects.select_for_update().get(pk=reconfiguration_id)
    if seen_version is not None and seen_version != row.version:
        raise StaleVersion(seen_version, row.version, "reconfiguration")
    return row, job


def _pending(job: Job) -> Reconfiguration | None:
    return Reconfiguration.objects.select_for_update().filter(job=job, state__in=PENDING).first()


def _check_current(job: Job, epoch: int, before: dict[str, Any]) -> None:
    """Raise JobMovedOn unless the job still runs in the epoch and in the layout that was planned for."""
    if job.state != JobState.RUNNING:
        raise JobMovedOn(f"it is {job.state}")
    run = TrainingRun.objects.get(pk=job.pk)
    if run.epoch != epoch:
        raise JobMovedOn(f"the plan is for epoch {epoch}, it is in epoch {run.epoch}")
    if run.layout.get("replicas") != before.get("replicas"):
        raise JobMovedOn("it runs in another layout than the plan starts from")


def _check_role(job: Job, approver: User) -> None:
    if not allows(role_in(approver, job.team_id), Permission.ADMINISTER):
        raise MayNotDecide


def _check_move(row: Reconfiguration, new: State) -> None:
    if not can_reconfigure(State(row.state), new):
        raise IllegalReconfiguration(row.state, new)


def _decide(row: Reconfiguration, job: Job, new: State, *, actor: str, reason: str) -> None:
    row.decided_at = timezone.now()
    _move(row, job, new, reason=reason)
    detail = {"kind": row.kind, "plan_digest": row.plan_digest, "comment": row.comment}
    if row.break_glass:
        detail["break_glass"] = row.break_glass
    verb = "approve" if new is State.APPROVED else "reject"
    audit(
        actor=actor, action=f"reconfiguration.{verb}", target=_target(row), team_id=job.team_id, detail=detail
    )
    if new is State.APPROVED:
        ring(EXECUTE, queue=RECOVERY_QUEUE, args=[str(row.pk)])


def _move(row: Reconfiguration, job: Job, new: State, *, reason: str = "") -> None:
    _check_move(row, new)
    row.state, row.reason = new, reason[:1000]
    row.version += 1
    if new not in PENDING:
        row.ended_at = timezone.now()
    row.save()
    _tell(row, job, new.value)


def _tell(row: Reconfiguration, job: Job, happened: str) -> None:
    fact = Fact(f"reconfiguration.{happened}", reconfiguration_facts(row))
    record(job.stream, [fact])
    record(f"team:{job.team_id}", [fact])


def reconfiguration_facts(row: Reconfiguration) -> dict[str, Any]:
    """Return what events say of a reconfiguration."""
    return {
        "id": str(row.pk),
        "job": str(row.job_id),
        "verdict": str(row.verdict_id) if row.verdict_id else None,
        "kind": row.kind,
        "state": row.state,
        "reason": row.reason,
        "plan_digest": row.plan_digest,
        "baseline_iteration_s": row.baseline_iteration_s,
        "predicted_iteration_s": row.predicted_iteration_s,
        "predicted_pause_s": row.predicted_pause_s,
        "by_policy": row.by_policy,
        "comment": row.comment,
        "expires_at": row.expires_at.isoformat(),
        "outcome": row.outcome,
        "version": row.version,
    }


def _target(row: Reconfiguration) -> str:
    return f"reconfiguration:{row.pk}"
