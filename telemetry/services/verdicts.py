"""The doors through which a verdict's state changes."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster.models import Device
from jobs.models import Job
from journal.services import Fact, record
from telemetry.core.states import FAULTS, VerdictKind, VerdictState
from telemetry.core.verdict_facts import sentence, verdict_facts
from telemetry.models import Verdict
from telemetry.services.failures import record_failure


@dataclass(frozen=True)
class FoundVerdict:
    """An incident as the detector found it."""

    kind: VerdictKind
    subject: dict[str, Any]
    confidence: float
    factor: float | None = None
    first_step: int | None = None
    detected_step: int | None = None
    evidence: list[dict[str, Any]] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)
    first_sample_at: datetime | None = None


@transaction.atomic
def open_verdict(*, job_id: UUID, found: FoundVerdict, device_id: UUID | None = None) -> tuple[Verdict, bool]:
    """Open an incident with its failure event; one that is going on already is returned as it is.

    The second value says whether it is new.
    """
    job = Job.objects.select_for_update().get(pk=job_id)
    key = subject_key(found.subject)
    known = Verdict.objects.filter(job=job, kind=found.kind, subject_key=key, state=VerdictState.OPEN).first()
    if known is not None:
        return known, False
    device = Device.objects.filter(pk=device_id).select_related("node").first() if device_id else None
    fields = {name: getattr(found, name) for name in FoundVerdict.__dataclass_fields__}
    verdict = Verdict.objects.create(job=job, device=device, subject_key=key, **fields)
    _tell(verdict, job, "opened")
    if found.kind in FAULTS:
        record_failure(
            kind=f"verdict.{found.kind}",
            job=job,
            device=device,
            message=sentence(verdict, device),
            detail={"verdict": str(verdict.pk), "subject": found.subject, "factor": found.factor},
        )
    return verdict, True


def follow_verdict(
    *,
    verdict_id: UUID,
    factor: float | None,
    confidence: float,
    evidence: list[dict[str, Any]],
    series: dict[str, Any],
) -> None:
    """Bring an open incident up to date; that is no event of its own."""
    Verdict.objects.filter(pk=verdict_id, state=VerdictState.OPEN).update(
        factor=factor, confidence=confidence, evidence=evidence, series=series
    )


@transaction.atomic
def clear_verdict(*, verdict_id: UUID, reason: str) -> Verdict:
    """End an incident; harmless if it has ended."""
    job_id = Verdict.objects.values_list("job_id", flat=True).get(pk=verdict_id)
    job = Job.objects.select_for_update().get(pk=job_id)
    verdict = Verdict.objects.select_for_update().get(pk=verdict_id)
    if verdict.state == VerdictState.OPEN:
        verdict.state, verdict.reason = VerdictState.CLEARED, reason[:300]
        verdict.cleared_at = timezone.now()
        verdict.version += 1
        verdict.save(update_fields=["state", "reason", "cleared_at", "version"])
        _tell(verdict, job, "cleared")
    return verdict


@transaction.atomic
def clear_verdicts_of(*, job_id: UUID, reason: str) -> int:
    """End every incident of a job, for it has ended or runs in another layout now."""
    rows = Verdict.objects.filter(job_id=job_id, state=VerdictState.OPEN).values_list("pk", flat=True)
    return len([clear_verdict(verdict_id=pk, reason=reason) for pk in list(rows)])


def subject_key(subject: dict[str, Any]) -> str:
    """Return a subject as one text: the fields that apply, in order."""
    names = ("node", "replica", "stage", "rank")
    return " ".join(f"{name} {subject[name]}" for name in names if subject.get(name) is not None)[:100]


def _tell(verdict: Verdict, job: Job, happened: str) -> None:
    fact = Fact(f"verdict.{happened}", verdict_facts(verdict))
    record(job.stream, [fact])
    record(f"team:{job.team_id}", [fact])
