"""What can go wrong with telemetry."""


class TelemetryError(Exception):
    """Something asked of telemetry cannot be done."""


class MalformedLine(TelemetryError):
    """A line of a step log that is no sample or heartbeat; the message names the field and the rule."""


class MalformedTrace(TelemetryError):
    """A trace file that lacks columns or rows; the message names what is missing."""


class InvalidWebhook(TelemetryError):
    """A webhook breaks rules; each fault is a JSON Pointer and a sentence."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer} {sentence}" for pointer, sentence in faults))
        self.faults = faults
