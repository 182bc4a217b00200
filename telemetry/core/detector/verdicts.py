"""Verdicts: a closed list of kinds, a subject, evidence, and a life from open to cleared."""

from dataclasses import dataclass, field
from typing import Any

from telemetry.core.states import FAULTS, VerdictKind

__all__ = ["FAULTS", "Evidence", "Subject", "Verdict", "VerdictKind"]


@dataclass(frozen=True)
class Subject:
    """What a verdict is about; fields that do not apply are None."""

    rank: int | None = None
    replica: int | None = None
    stage: int | None = None
    node: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the subject as plain data."""
        return {"rank": self.rank, "replica": self.replica, "stage": self.stage, "node": self.node}


@dataclass(frozen=True)
class Evidence:
    """One test's result: its value, the threshold it was held against, on how many samples."""

    test: str
    value: float
    threshold: float
    samples: int

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as plain data."""
        return {"test": self.test, "value": self.value, "threshold": self.threshold, "samples": self.samples}


@dataclass
class Verdict:
    """A finding about a subject; `slowdown` is a factor of the healthy time."""

    kind: VerdictKind
    subject: Subject
    slowdown: float | None
    first_step: int | None
    detected_step: int | None
    confidence: float
    evidence: list[Evidence] = field(default_factory=list)
    state: str = "open"

    @property
    def is_open_fault(self) -> bool:
        """Whether something is broken now."""
        return self.state == "open" and self.kind in FAULTS

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as the contract's plain data."""
        return {
            "kind": str(self.kind),
            "subject": self.subject.to_json(),
            "slowdown": self.slowdown,
            "first_step": self.first_step,
            "detected_step": self.detected_step,
            "state": self.state,
            "confidence": self.confidence,
            "evidence": [row.to_json() for row in self.evidence],
        }
