"""Training jobs as a kind of job: checking their spec, creating their rows, waking their driver, faults."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Min
from django.utils import timezone

from cluster.queries import usable_devices
from jobs.core.errors import InvalidSpec, JobMovedOn
from jobs.core.states import FaultMode, JobState
from jobs.models import Injection, Job, TrainingRun
from jobs.services.lifecycle import lock_job
from jobs.services.reconfigurations import supersede
from journal.services import Fact, audit, record, ring

DRIVE = "training.drive"
QUEUE = "tuner"
LARGEST_FACTOR = 100.0
LONGEST_FAULT_S = 86_400.0


class TrainingHandler:
    """What `jobs` needs to know about training jobs."""

    # Ranks that the layout needs; the queue gives as many devices, or all cores for ranks to share.
    own_fields = frozenset({"devices"})

    def check(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete spec; raise InvalidSpec with a pointer and a sentence for every fault."""
        # Loaded where a training job is submitted and not wherever Django starts.
        from jobs.core.training import check_spec

        return check_spec(spec, cluster_facts())

    def created(self, job: Job) -> None:
        """Add the run's row: its layout on ranks, none of them with a device yet."""
        from jobs.core.training.layout import on_ranks

        TrainingRun.objects.create(
            job=job, steps_total=job.spec["steps"], layout=on_ranks(job.spec["layout"])
        )

    def resumed(self, job: Job) -> None:
        """Drop plans that were made for the run that ended; the next driver starts at the checkpoint."""
        supersede(job_id=job.pk, reason="the job was resumed")

    def wake(self, job: Job) -> None:
        """Ring a driver for the job."""
        wake(job)


@transaction.atomic
def wake(job: Job) -> None:
    """Ring a driver; it looks at the job and its lease and decides for itself."""
    Job.objects.filter(pk=job.pk).update(woken_at=timezone.now())
    ring(DRIVE, queue=QUEUE, args=[str(job.pk)])


def cluster_facts() -> Any:
    """Return what a layout is checked against: GPUs one rank each, or cores that ranks share."""
    from jobs.core.training import ClusterFacts

    devices = usable_devices()
    gpus = devices.exclude(kind="cpu")
    found = gpus if gpus.exists() else devices
    nodes: dict[UUID, int] = {}
    for node_id in found.values_list("node_id", flat=True):
        nodes[node_id] = nodes.get(node_id, 0) + 1
    return ClusterFacts(
        devices=sum(nodes.values()),
        shared=found is devices,
        memory_bytes=found.aggregate(least=Min("memory_bytes"))["least"] or 0,
        largest_node=max(nodes.values(), default=0),
    )


@transaction.atomic
def inject_fault(
    *, job_id: UUID, mode: FaultMode, rank: int, factor: float, seconds: float | None, actor: str
) -> Injection:
    """Ask for a fault in a rank of a running training job; its driver hands it on.

    Raises JobMovedOn for a job that does not run, InvalidSpec for a rank that it does not have.
    """
    job = lock_job(job_id)
    run = TrainingRun.objects.filter(pk=job_id).first()
    if run is None:
        raise JobMovedOn(f"it is a {job.kind}; faults are injected into training jobs")
    if job.state != JobState.RUNNING:
        raise JobMovedOn(f"it is {job.state}; faults are injected into running jobs")
    living = living_ranks(run.layout)
    if rank not in living:
        raise InvalidSpec([("/rank", f"rank {rank} does not live; these do: {_listed(living)}")])
    injection = Injection.objects.create(
        run=run, mode=mode, rank=rank, factor=factor, seconds=seconds, actor=actor[:200]
    )
    data = injection_facts(injection)
    record(job.stream, [Fact("fault.injected", data)])
    audit(actor=actor, action="job.inject", target=f"job:{job.pk}", team_id=job.team_id, detail=data)
    return injection


def injection_facts(injection: Injection) -> dict[str, Any]:
    """Return what events and answers say of an injected fault."""
    return {
        "id": str(injection.pk),
        "job": str(injection.run_id),
        "mode": injection.mode,
        "rank": injection.rank,
        "factor": injection.factor,
        "seconds": injection.seconds,
    }


def working_ranks(layout: Mapping[str, Any]) -> list[int]:
    """Return the ranks that a layout document puts to work, in ascending order."""
    return sorted(
        int(name[1:])
        for replica in layout.get("replicas", [])
        for stage in replica["stages"]
        for name in stage["devices"]
    )


def living_ranks(layout: Mapping[str, Any]) -> list[int]:
    """Return the ranks that have a process, those that a layout leaves idle included."""
    return sorted({*working_ranks(layout), *(int(name[1:]) for name in layout.get("idle", []))})


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:20]))
    return shown + (f" and {len(ranks) - 20} more" if len(ranks) > 20 else "") or "none"
