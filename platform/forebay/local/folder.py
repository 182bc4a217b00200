"""The folder of a local study: snapshot, models, result."""

import json
import os
from pathlib import Path
from typing import Any

from tuning.core.errors import SnapshotError
from tuning.core.states import TrialState
from tuning.core.study import Study

SNAPSHOT = "study.json"
RESULT = "result.json"


class StudyFolder:
    """Where a study keeps what must survive it. A study is resumed from here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Make the folder; SnapshotError where it already holds a study, OSError where it cannot be made."""
        if (self.path / SNAPSHOT).exists():
            raise SnapshotError(
                f"{self.path} already holds a study; use --resume {self.path} to go on with it"
            )
        self.path.mkdir(parents=True, exist_ok=True)

    def save(self, study: Study, elapsed_s: float) -> None:
        """Write the snapshot; it is complete or the one before it."""
        self._write(SNAPSHOT, {"elapsed_s": elapsed_s, "study": study.snapshot()})

    def load(self) -> tuple[dict[str, Any], float]:
        """Return the snapshot and the seconds the study has had; SnapshotError where there is none."""
        path = self.path / SNAPSHOT
        try:
            document = json.loads(path.read_text())
            return document["study"], float(document["elapsed_s"])
        except FileNotFoundError as error:
            raise SnapshotError(f"{self.path} holds no study to resume (no {SNAPSHOT} there)") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"{path} cannot be read: {type(error).__name__}: {error}") from error

    def write_result(self, document: dict[str, Any]) -> None:
        """Write the result as JSON, beside the models."""
        self._write(RESULT, document)

    def tidy(self, study: Study) -> None:
        """Remove checkpoints that nobody can continue from, and models of trials that are not the best."""
        open_ends = {t.checkpoint for t in study.trials if t.state == TrialState.CUT}
        open_ends |= {target.checkpoint for target in study.targets if target.state == "cut"}
        for path in self.path.glob("*.pt"):
            if str(path) not in open_ends:
                path.unlink(missing_ok=True)
        best = study.best()
        for trial in study.trials:
            if trial.model and (best is None or best["trial"] != trial.number):
                Path(trial.model).unlink(missing_ok=True)
                Path(trial.model).with_suffix(".json").unlink(missing_ok=True)
                trial.model = None

    def _write(self, name: str, document: dict[str, Any]) -> None:
        part = self.path / f"{name}.{os.getpid()}.part"
        part.write_text(json.dumps(document, allow_nan=False))
        os.replace(part, self.path / name)
