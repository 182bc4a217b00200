"""A verdict in one sentence for people, and as the plain data of events and snapshots."""

from typing import Any, Protocol

from telemetry.core.states import KIND_LABELS, VerdictKind


class VerdictRow(Protocol):
    """A verdict as it is kept."""

    pk: Any
    job_id: Any
    device_id: Any
    kind: Any
    state: Any
    subject: Any
    subject_key: Any
    factor: Any
    confidence: Any
    first_step: Any
    detected_step: Any
    evidence: Any
    reason: Any
    version: Any


def sentence(verdict: VerdictRow, device: object | None) -> str:
    """Return an incident in one sentence for people."""
    where = verdict.subject_key or "the whole job"
    on = f" on {device}" if device else ""
    slow = f", {verdict.factor:.2f} times its healthy time" if verdict.factor else ""
    since = f", since step {verdict.first_step}" if verdict.first_step is not None else ""
    return f"{KIND_LABELS[VerdictKind(verdict.kind)]}: {where}{on}{slow}{since}"


def verdict_facts(verdict: VerdictRow) -> dict[str, Any]:
    """Return what events say of a verdict."""
    return {
        "id": str(verdict.pk),
        "job": str(verdict.job_id),
        "device": str(verdict.device_id) if verdict.device_id else None,
        "kind": verdict.kind,
        "state": verdict.state,
        "subject": verdict.subject,
        "slowdown": verdict.factor,
        "confidence": verdict.confidence,
        "first_step": verdict.first_step,
        "detected_step": verdict.detected_step,
        "evidence": verdict.evidence,
        "reason": verdict.reason,
        "version": verdict.version,
    }
