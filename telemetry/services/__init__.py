"""Every write of telemetry."""

from telemetry.services.failures import record_failure
from telemetry.services.verdicts import clear_verdict, open_verdict

__all__ = ["clear_verdict", "open_verdict", "record_failure"]
