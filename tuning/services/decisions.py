"""Decisions on a study's devices, as events that people can read: what was decided, and why."""

from collections.abc import Sequence

from cluster.core.coordinator import BundleDecision
from jobs.models import Job
from journal.services import Fact, record

DECISION = "coordinator.decision"


def tell_decisions(job: Job, decisions: Sequence[BundleDecision]) -> None:
    """Record decisions that are carried out on the study's stream."""
    record(
        job.stream,
        [
            Fact(DECISION, {"kind": d.kind, "subject": d.subject, "reason": d.reason, "sizes": list(d.sizes)})
            for d in decisions
        ],
    )
