"""Works on one overlap job: a process of its own captures and plans, this one keeps the lease and waits."""

import os
import socket
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from cluster.core.errors import LeaseLost
from cluster.services.leases import release_all, take_lease
from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.overlaps import cancel_asked, claim_overlap, end_overlap, finish_overlap
from workers.trainer.overlap.isolation import StudyFailed, StudyStopped, run_apart
from workers.tuner.heartbeat import Heartbeat
from workers.tuner.shutdown import stopping

log = structlog.get_logger(__name__)
LOOK_S = 1.0


def run_overlap(job_id: UUID) -> None:
    """Work on an overlap job if nobody else does."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    held = take_lease(name=f"overlap:{job_id}", owner=owner, seconds=settings.LEASE_SECONDS)
    if held is None:
        return
    try:
        with Heartbeat(held, settings.LEASE_SECONDS) as heartbeat:
            job = claim_overlap(job_id=job_id, held=held)
            if job is not None:
                _work(job, heartbeat)
    except LeaseLost:
        log.warning("overlap.lease_lost", job=str(job_id))
    finally:
        release_all(owner)
        connection.close()


def _work(job: Job, heartbeat: Heartbeat) -> None:
    held = heartbeat.held
    try:
        document = run_apart(request_of(job.spec), stop=_asked(job.pk, heartbeat))
        finish_overlap(job_id=job.pk, held=held, document=document)
    except StudyStopped:
        heartbeat.check()
        if stopping.is_set():
            # Another worker is rung for at the next tick and begins again.
            Job.objects.filter(pk=job.pk, state=JobState.RUNNING).update(woken_at=None)
        else:
            end_overlap(job_id=job.pk, held=held, state=JobState.CANCELLED, reason="cancelled")
    except StudyFailed as error:
        end_overlap(job_id=job.pk, held=held, state=JobState.FAILED, reason=str(error))


def request_of(spec: dict[str, Any]) -> dict[str, Any]:
    """What the other process is asked for a job's spec, with the variants that its page needs."""
    slowdown = spec["slowdown"]
    return {
        "program": spec["program"],
        "size": spec.get("size"),
        "tiles": None if spec["tiles"] == "auto" else spec["tiles"],
        "cluster": spec["cluster"],
        "policy": spec["policy"],
        "memory_budget": spec["memory_budget"],
        "slowdown": [slowdown["compute"], slowdown["comm"]],
        "variants": True,
    }


def _asked(job_id: UUID, heartbeat: Heartbeat) -> Callable[[], bool]:
    looked = time.monotonic()

    def asked() -> bool:
        nonlocal looked
        heartbeat.check()
        if stopping.is_set():
            return True
        if time.monotonic() - looked < LOOK_S:
            return False
        looked = time.monotonic()
        try:
            return cancel_asked(job_id)
        except (OperationalError, InterfaceError):
            connection.close()
            return False

    return asked
