"""Studies as a kind of job: checking their spec, creating their rows, waking their driver."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from cluster.core.queue import Demand
from cluster.queries import usable_devices
from jobs.core.errors import InvalidSpec
from jobs.core.scheduling import Scheduling, elastic_demand, gang_demand
from jobs.models import Job
from journal.services import ring
from tuning.core.errors import SpecError, escape
from tuning.core.space import Space, parse_space
from tuning.core.study.spec import StudySpec
from tuning.models import Study, Workload

DRIVE = "tuning.drive"
QUEUE = "tuner"


class StudyHandler:
    """What `jobs` needs to know about studies."""

    own_fields = ("devices",)

    def demand(self, spec: Mapping[str, Any], fields: Scheduling, now_s: float) -> Demand:
        """Return what a study asks of the queue.

        From one device on, or none where it uses bubbles only; where it may use them, it begins in them.
        """
        faults = [
            (f"/spec/{name}", "a study takes single devices: give devices")
            for name in ("tasks", "devices_per_task")
            if getattr(fields, name) is not None
        ]
        if faults:
            raise InvalidSpec(faults)
        if spec.get("bubbles") == "only":
            return gang_demand(replace(fields, devices=None), now_s, devices=0)
        borrows = spec.get("bubbles") == "allowed"
        return elastic_demand(replace(fields, devices=spec.get("devices")), now_s, borrows=borrows)

    def check(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete spec; raise InvalidSpec with a pointer and a sentence for every fault."""
        try:
            study = StudySpec.from_dict(spec)
            workload = _workload(study.workload)
            space = study.checked_space(parse_space(workload.description["space"]))
        except SpecError as error:
            raise InvalidSpec([(problem.pointer, problem.detail) for problem in error.problems]) from error
        _check_transfer(study, workload, space)
        _check_devices(study)
        return {**study.to_dict(), "epochs": study.epochs or int(workload.description["epochs"])}

    def created(self, job: Job) -> None:
        """Add the study's row."""
        workload = _workload(job.spec["workload"])
        Study.objects.create(
            job=job,
            workload=workload.name,
            metric=workload.description["metric"],
            mode=workload.description["mode"],
            trials_total=job.spec["trials"],
        )

    def resumed(self, job: Job) -> None:
        """Nothing to prepare: the driver finds the study cut and takes it up again."""

    def wake(self, job: Job) -> None:
        """Ring a driver for the job."""
        wake(job)


@transaction.atomic
def wake(job: Job) -> None:
    """Ring a driver; it looks at the job and its lease and decides for itself."""
    Job.objects.filter(pk=job.pk).update(woken_at=timezone.now())
    ring(DRIVE, queue=QUEUE, args=[str(job.pk)])


def _workload(name: str) -> Workload:
    workload = Workload.objects.filter(name=name).first()
    if workload is None or not workload.is_available:
        raise InvalidSpec([("/spec/workload", _why_not(name, workload))])
    return workload


def _why_not(name: str, workload: Workload | None) -> str:
    if not Workload.objects.exists():
        return "no workload is known yet: they are read after a start; try again in a few seconds"
    names = ", ".join(Workload.objects.filter(is_available=True).values_list("name", flat=True))
    why = f" ({workload.error})" if workload else ""
    return f"'{name[:100]}' is not available{why}; registered here: {names or 'none'}"


def _check_transfer(study: StudySpec, workload: Workload, space: Space) -> None:
    """Refuse to search with surrogates what does not carry over to the target."""
    transfers: Mapping[str, bool] = workload.description.get("transfers", {})
    faults = [
        (
            f"/spec/space/{escape(name)}",
            "does not transfer from narrow surrogates to the target; fix it, search it with scaling 1, "
            "or set target_search to the number of its values that are tried on the target in the end",
        )
        for name in space.names
        if study.scaling > 1
        and not study.target_search
        and not transfers.get(name, True)
        and len(space[name].distribution.points() or "ab") > 1
    ]
    if faults:
        raise InvalidSpec(faults)


def _check_devices(study: StudySpec) -> None:
    known = usable_devices().count()
    if study.devices and known and study.devices > known:
        raise InvalidSpec([("/spec/devices", f"asks for {study.devices} devices, this cluster has {known}")])
