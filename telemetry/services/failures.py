"""Failure events."""

from typing import Any

from cluster.models import Device
from jobs.models import Job
from telemetry.models import FailureEvent


def record_failure(
    *,
    kind: str,
    message: str,
    job: Job | None = None,
    device: Device | None = None,
    detail: dict[str, Any] | None = None,
) -> FailureEvent:
    """Write down that something broke."""
    return FailureEvent.objects.create(
        kind=kind, job=job, device=device, message=message[:1000], detail=detail or {}
    )
