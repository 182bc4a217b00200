"""Fail-slow and fail-stop detection: independent tests, one closed list of verdicts."""

from telemetry.core.detector.detector import Detector
from telemetry.core.detector.heartbeat import HeartbeatMonitor
from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.samples import StepBatch, StepSample, batch_of, sample_from
from telemetry.core.detector.verdicts import FAULTS, Subject, Verdict, VerdictKind

__all__ = [
    "FAULTS",
    "Detector",
    "HeartbeatMonitor",
    "Ledger",
    "StepBatch",
    "StepSample",
    "Subject",
    "Verdict",
    "VerdictKind",
    "batch_of",
    "sample_from",
]
