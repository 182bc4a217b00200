"""A tick as the jobs see it: who was started is rung for, who has to stop is told, who waits learns why."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from cluster.core.states import ClusterName, EntryState
from cluster.models import Lease, QueueEntry
from cluster.services.coordinator import Ticked, tick
from jobs.core.errors import IllegalMove
from jobs.core.states import JobKind, JobState
from jobs.models import Job
from jobs.services import rehearsals
from jobs.services.demands import ask_again, queue_job
from jobs.services.kinds import available_kinds, handler_of
from jobs.services.lifecycle import cancel_job, tell

log = structlog.get_logger(__name__)
SIMULATED_ROUNDS = 3  # a simulated job leaves at once, so that its successor can start within the same tick
COORDINATION_LOCK = 0x466F7265_636F6F72
MOST_TOLD = 200  # waiting jobs told of a new reason per tick; the others' turn comes with the next

SHOW_REASONS = """
UPDATE jobs_job AS job SET reason = entry.message
FROM cluster_queueentry AS entry
WHERE entry.job_id = job.id AND job.state = 'queued' AND entry.state = 'waiting' AND entry.reason <> ''
  AND job.reason <> entry.message
"""


def coordinate(*, silent_s: float = 20.0) -> None:
    """Decide on both queues once and carry out what follows; safe to run at any time, by anybody.

    Where somebody else is at it nothing is done: the next tick is at most a second away.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [COORDINATION_LOCK])
        if not cursor.fetchone()[0]:
            return
    try:
        _coordinate(silent_s)
    finally:
        # Where the connection is gone, so is the lock.
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [COORDINATION_LOCK])


def _coordinate(silent_s: float) -> None:
    adopt_strays()
    ask_again()
    rehearsals.end_cancelled()
    rehearsals.end_due()
    for name in ClusterName:
        if not _has_jobs(name):
            continue
        for _ in range(SIMULATED_ROUNDS if name is ClusterName.REHEARSAL else 1):
            ticked = tick(name)
            if ticked is None or not (follow(ticked) | rehearsals.give_back()):
                break
    cancel_overrun()
    show_reasons()
    for job in jobs_to_wake(silent_s=silent_s):
        wake(job)


def _has_jobs(name: ClusterName) -> bool:
    simulated = name is ClusterName.REHEARSAL
    return QueueEntry.objects.filter(is_simulated=simulated).exclude(state=EntryState.ENDED).exists()


def follow(ticked: Ticked) -> bool:
    """Ring for jobs that were started or have to stop; return whether simulated ones made room."""
    for job in _jobs(ticked.started):
        if job.kind == JobKind.REHEARSAL:
            rehearsals.begin(job)
        else:
            wake(job)
    made_room = False
    for job in _jobs(ticked.stopped or {}):
        if job.kind == JobKind.REHEARSAL:
            rehearsals.leave(job)
            made_room = True
        else:
            wake(job)
    return made_room


def _jobs(ids: Iterable[UUID]) -> list[Job]:
    found = Job.objects.in_bulk(list(ids))
    return [found[job_id] for job_id in ids if job_id in found]


@transaction.atomic
def wake(job: Job) -> None:
    """Ring for whoever works on a job, and note that it was done."""
    Job.objects.filter(pk=job.pk).update(woken_at=timezone.now())
    handler_of(job.kind).wake(job)


def jobs_to_wake(*, silent_s: float) -> list[Job]:
    """Return jobs that hold devices, or have to leave them, and have no driver that lives."""
    now = timezone.now()
    living = Lease.objects.filter(expires_at__gte=now).exclude(owner="").values_list("name", flat=True)
    held = {name.partition(":")[2] for name in living if name.partition(":")[0] in available_kinds()}
    rows = QueueEntry.objects.filter(is_simulated=False, state__in=[EntryState.RUNNING, EntryState.STOPPING])
    jobs = Job.objects.filter(
        pk__in=rows.values("job_id"),
        state__in=[JobState.QUEUED, JobState.RUNNING],
        kind__in=available_kinds(),
    )
    patience = timedelta(seconds=silent_s)
    return [
        job
        for job in jobs.order_by("created_at")
        if str(job.pk) not in held and (job.woken_at is None or now - job.woken_at >= patience)
    ]


def adopt_strays() -> None:
    """Put jobs into the queue that should be in it and are not, such as those of an older version."""
    known = QueueEntry.objects.exclude(state=EntryState.ENDED).values("job_id")
    strays = Job.objects.filter(state__in=[JobState.QUEUED, JobState.RUNNING], kind__in=available_kinds())
    for job in strays.exclude(pk__in=known).select_related("team", "owner"):
        log.info("queue.adopted", job=str(job.pk))
        queue_job(job, {}, strict=False)


def cancel_overrun() -> None:
    """End jobs that have run longer than the limit they were submitted with."""
    now = timezone.now()
    running = QueueEntry.objects.filter(
        is_simulated=False, state=EntryState.RUNNING, demand__limit_s__isnull=False, started_at__isnull=False
    )
    for entry in running:
        limit_s = entry.demand["limit_s"]
        if limit_s is None or entry.started_at is None:
            continue
        if entry.executed_s + (now - entry.started_at).total_seconds() < limit_s:
            continue
        job = Job.objects.filter(pk=entry.job_id, cancel_asked_at__isnull=True).first()
        if job is None:
            continue
        try:
            cancel_job(job_id=job.pk, actor=f"the queue: it ran into its limit of {limit_s:g} s")
        except IllegalMove:
            continue  # it has just ended by itself


def show_reasons() -> None:
    """Say in the jobs themselves why they wait; tell their streams where the kind of reason is new."""
    waiting = QueueEntry.objects.filter(state=EntryState.WAITING).exclude(reason="")
    reasons = dict(waiting.values_list("job_id", "reason"))
    queued = Job.objects.filter(state=JobState.QUEUED, pk__in=reasons).values_list("pk", "substate")
    news = [pk for pk, substate in queued if substate != _words(reasons[pk])]
    for job_id in news[:MOST_TOLD]:
        _show(job_id)
    with connection.cursor() as cursor:
        cursor.execute(SHOW_REASONS)


@transaction.atomic
def _show(job_id: UUID) -> None:
    job = Job.objects.select_for_update().get(pk=job_id)
    entry = QueueEntry.objects.filter(pk=job_id, state=EntryState.WAITING).first()
    if entry is None or job.state != JobState.QUEUED:
        return
    job.substate, job.reason = _words(entry.reason), entry.message
    job.save(update_fields=["substate", "reason"])
    tell(job)


def _words(reason: str) -> str:
    return reason.replace("_", " ")
