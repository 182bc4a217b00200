"""The workload models of all stages, and what they let expect of each cell in a step."""

from typing import Any

import numpy as np

from telemetry.core.detector.fleet import Array, Indices
from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.sequential import Mask
from telemetry.core.detector.verdicts import Evidence, Subject, Verdict, VerdictKind
from telemetry.core.detector.workload import WORST_MAPE, Fit, StageModel

FITS_PER_STEP = 2
UNCLEAR = VerdictKind.INSUFFICIENT_EVIDENCE


class WorkloadBook:
    """One StageModel for each stage that reports tokens."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.models: dict[int, StageModel] = {}
        self._changed: set[int] = set()

    def log_factor(self, tokens: Array, sum_sq: Array, stage: Indices) -> tuple[Array, Mask, set[int]]:
        """Return for each cell the log of its work over usual work, and whether its past can be judged by.

        The factor is NaN while work varies and no model explains it yet. Where a model was refused, only
        peers can be compared. The stages whose model changed materially since the last call come third.
        """
        factor, judged = np.zeros(len(tokens)), np.ones(len(tokens), dtype=bool)
        for number, model in self.models.items():
            mine = stage == number
            rows = np.flatnonzero(mine)
            factor[rows] = model.log_factor(tokens[rows], np.nan_to_num(sum_sq[rows]))
            if model.refused:
                judged[rows] = False
        changed, self._changed = self._changed, set()
        return factor, judged, changed

    def learn(
        self, tokens: Array, sum_sq: Array, own_s: Array, calm: Mask, stage: Indices, step: int
    ) -> None:
        """Add one step's samples of calm cells, in seconds."""
        given = np.isfinite(tokens) & np.isfinite(own_s) & calm
        for number in np.unique(stage[given]).tolist():
            model = self.models.setdefault(number, StageModel(number))
            rows = np.flatnonzero(given & (stage == number))
            model.add(tokens[rows], np.nan_to_num(sum_sq[rows]), own_s[rows])
        # A fit costs milliseconds: a job of many stages makes two in each step.
        due = [number for number, model in self.models.items() if model.due]
        for number in due[:FITS_PER_STEP]:
            model = self.models[number]
            if model.fit_again():
                self._changed.add(number)
            subject = Subject(None, None, number, None)
            if model.refused and model.fit is not None:
                evidence = [Evidence("workload_model_mape", model.fit.mape, WORST_MAPE, model.filled)]
                verdict = Verdict(UNCLEAR, subject, None, None, step, 0.9, evidence)
                self.ledger.open(verdict, flaps=False)
            elif model.usable:
                self.ledger.clear(UNCLEAR, subject)

    def to_json(self) -> dict[str, Any]:
        """Return the stage with the largest error first, then all of them; nulls without a model."""
        fits = {number: model.fit for number, model in sorted(self.models.items()) if model.fit is not None}
        if not fits:
            return {"t0": None, "alpha": None, "beta": None, "mape": None, "stages": []}
        worst = max(fits.values(), key=lambda fit: fit.mape)
        stages = [{"stage": number, **_numbers(fit)} for number, fit in fits.items()]
        return {**_numbers(worst), "stages": stages}

    def notes(self) -> list[str]:
        """Return in words what the models cannot do."""
        found = []
        unclear: dict[str, list[int]] = {}
        for number, model in sorted(self.models.items()):
            if model.refused and model.fit is not None:
                found.append(
                    f"the workload model of stage {number} is off by {model.fit.mape:.1%} (at most "
                    f"{WORST_MAPE:.0%} is accepted): its ranks are compared with their peers only"
                )
            elif model.varies and model.fit is not None and model.fit.note:
                unclear.setdefault(model.fit.note, []).append(number)
        for note, stages in unclear.items():
            found.append(f"workload model of stage {', '.join(map(str, stages))}: {note}")
        return found


def _numbers(fit: Fit) -> dict[str, float]:
    return {"t0": fit.t0, "alpha": fit.alpha, "beta": fit.beta, "mape": fit.mape}
