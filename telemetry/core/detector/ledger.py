"""The book of verdicts: incidents open, clear, come back, and at the third time are one flapping device."""

from telemetry.core.detector.verdicts import Evidence, Subject, Verdict, VerdictKind

# The third onset on one subject makes it intermittent.
ONSETS = 3


class Ledger:
    """Verdicts in order of detection; at most three for each kind and subject, however long the run."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self._open: dict[tuple[VerdictKind, Subject], Verdict] = {}
        self._onsets: dict[tuple[VerdictKind, Subject], list[Verdict]] = {}

    def is_open(self, kind: VerdictKind, subject: Subject) -> bool:
        """Whether this incident is going on."""
        return (kind, subject) in self._open

    @property
    def any_fault_open(self) -> bool:
        """Whether anything is broken now."""
        return any(verdict.is_open_fault for verdict in self._open.values())

    def open(self, verdict: Verdict, *, flaps: bool = True) -> None:
        """Begin an incident; one that is going on already stays as it is."""
        key = (verdict.kind, verdict.subject)
        if key in self._open:
            return
        past = self._onsets.setdefault(key, [])
        if past and past[0].kind == VerdictKind.INTERMITTENT:
            past[0].evidence[0] = _onsets(int(past[0].evidence[0].value) + 1)
            self._open[key] = past[0]
            return
        past.append(verdict)
        if flaps and len(past) >= ONSETS:
            verdict = self._flapping(past)
        elif not flaps:
            del past[:-2]
        self.verdicts.append(verdict)
        self._open[key] = verdict

    def _flapping(self, past: list[Verdict]) -> Verdict:
        for verdict in past[:-1]:
            self.verdicts.remove(verdict)
        last = past[-1]
        merged = Verdict(
            VerdictKind.INTERMITTENT,
            last.subject,
            max((verdict.slowdown for verdict in past if verdict.slowdown is not None), default=None),
            past[0].first_step,
            last.detected_step,
            last.confidence,
            [_onsets(len(past)), *last.evidence],
        )
        past[:] = [merged]
        return merged

    def update(self, kind: VerdictKind, subject: Subject, slowdown: float, confidence: float) -> None:
        """Follow an incident that is going on; a flapping subject keeps its largest slowdown."""
        verdict = self._open.get((kind, subject))
        if verdict is None:
            return
        if verdict.kind == VerdictKind.INTERMITTENT:
            slowdown = max(slowdown, verdict.slowdown or slowdown)
        verdict.slowdown, verdict.confidence = slowdown, max(confidence, verdict.confidence)

    def clear(self, kind: VerdictKind, subject: Subject) -> None:
        """End an incident. A flapping subject stays open: that it is fine now is what flapping means."""
        verdict = self._open.pop((kind, subject), None)
        if verdict is not None and verdict.kind != VerdictKind.INTERMITTENT:
            verdict.state = "cleared"

    def clear_all(self) -> None:
        """End every incident that is going on, for the job has another layout now."""
        for kind, subject in list(self._open):
            self.clear(kind, subject)


def _onsets(count: int) -> Evidence:
    return Evidence("onsets", count, ONSETS, count)
