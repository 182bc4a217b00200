"""Celery tasks: ids in, one service call, nothing that would hurt if it ran twice or not at all."""

import subprocess
from uuid import UUID

import structlog
from celery import shared_task
from django.conf import settings

from cluster.models import Device
from cluster.services.devices import record_discovery
from jobs.services.coordination import coordinate
from journal.services import sweep_outbox
from tuning.core.errors import WorkloadError
from tuning.services.workloads import describe_workloads, store_workloads
from workers import alerts as alerts
from workers.discovery import ray_machines, this_machine
from workers.tuner import shutdown as shutdown

log = structlog.get_logger(__name__)
# A driver that was rung for has this long to take its lease before it is rung for again.
SILENT_S = 20.0


@shared_task(name="journal.sweep")
def sweep() -> None:
    """Send messages that a crash or a dead broker left in the outbox."""
    sweep_outbox()


@shared_task(name="cluster.tick")
def tick() -> None:
    """Decide once on the queue, and ring for jobs that should have a driver and have none alive."""
    if not Device.objects.filter(node__is_simulated=False).exists():
        discover()  # a fresh installation: the first job need not wait until it is time to look
    coordinate(silent_s=SILENT_S)


@shared_task(name="cluster.discover")
def discover() -> None:
    """Look which machines and devices there are."""
    if settings.RAY_ADDRESS:
        # Ray is loaded only where a cluster is configured; the local machine needs no Ray to be looked at.
        from workers.ray_cluster import nodes

        record_discovery(ray_machines(nodes()))
    else:
        record_discovery([this_machine()])


@shared_task(name="tuning.sync_workloads")
def sync_workloads() -> None:
    """Describe the registered workloads in a process of their own and store what it says."""
    try:
        store_workloads(describe_workloads())
    except (WorkloadError, subprocess.SubprocessError) as error:
        log.error("workloads.sync_failed", error=str(error))


# The message is acknowledged at once: the lease, not the broker, says who works on a study.
@shared_task(name="tuning.drive", acks_late=False)
def drive(job_id: str) -> None:
    """Drive a study until it ends or somebody else holds its lease."""
    from workers.tuner.driver import drive_study

    drive_study(UUID(job_id))


@shared_task(name="training.drive", acks_late=False)
def drive_training_job(job_id: str) -> None:
    """Drive a training job until it ends or somebody else holds its lease."""
    from workers.training.driver import drive_training

    drive_training(UUID(job_id))


@shared_task(name="overlap.run", acks_late=False)
def run_overlap_job(job_id: str) -> None:
    """Plan a program's communication until it is done or somebody else holds its lease."""
    from workers.overlap import run_overlap

    run_overlap(UUID(job_id))


@shared_task(name="recovery.watch")
def watch_recovery() -> None:
    """Find incidents without an answer, plans whose time is over, suspects to measure."""
    from workers.training.recovery import watch

    watch()


@shared_task(name="recovery.answer")
def answer_incident(verdict_id: str) -> None:
    """Plan for a slow or dead rank and propose what helps."""
    from telemetry.services.recovery import answer_verdict

    answer_verdict(UUID(verdict_id))


@shared_task(name="recovery.execute")
def execute_plan(reconfiguration_id: str) -> None:
    """See to it that an approved plan is begun."""
    from workers.training.recovery import execute

    execute(UUID(reconfiguration_id))


@shared_task(name="recovery.burn_in")
def burn_in_device(device_id: str) -> None:
    """Measure a suspect device."""
    from workers.training.recovery import burn_in

    burn_in(UUID(device_id))
