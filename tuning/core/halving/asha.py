"""ASHA (Li et al., MLSys 2020): one bracket of rungs at `grace * reduction**k` epochs.

`Ladder` holds the results of the rungs. In the stopping form a trial that reaches a rung goes on while its
rank among the rung's results so far is at most `max(1, floor(n / reduction))`. In the promotion form trials
pause at rungs, and the best `floor(n / reduction)` of a rung are promoted, each once. Comparisons are only
ever made within one rung.
"""

from dataclasses import dataclass, field
from typing import Any

from tuning.core.halving.ranking import ranked


def rung_epochs(grace: int, reduction: int, epochs: int) -> tuple[int, ...]:
    """Return the epochs at which trials are judged; the last epoch of a trial is not one of them."""
    rungs = []
    rung = grace
    while rung < epochs:
        rungs.append(rung)
        rung *= reduction
    return tuple(rungs)


@dataclass
class Ladder:
    """The results of every rung, and which trials were let through."""

    rungs: tuple[int, ...]
    reduction: int
    mode: str
    results: dict[int, dict[int, float | None]] = field(default_factory=dict)
    promoted: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rung in self.rungs:
            self.results.setdefault(rung, {})
            self.promoted.setdefault(rung, [])

    def record(self, rung: int, trial: int, value: float | None) -> None:
        """Keep a trial's result at a rung; the first one counts."""
        self.results[rung].setdefault(trial, value)

    def goes_on(self, rung: int, trial: int) -> bool:
        """Judge a trial in the stopping form, among what its rung has recorded so far."""
        order = ranked(self.results[rung], self.mode)
        kept = max(1, len(order) // self.reduction)
        return order.index(trial) < kept

    def survivors(self, rung: int, trials: list[int]) -> set[int]:
        """Judge several trials at once in the stopping form."""
        order = ranked(self.results[rung], self.mode)
        return set(order[: max(1, len(order) // self.reduction)]) & set(trials)

    def promotable(self, rung: int, closed: bool) -> list[int]:
        """Return the trials that may be promoted from a rung now, best first.

        A closed rung (no further trial can reach it) promotes at least one.
        """
        order = ranked(self.results[rung], self.mode)
        share = len(order) // self.reduction
        kept = order[: max(1, share) if closed else share]
        return [trial for trial in kept if trial not in self.promoted[rung]]

    def promote(self, rung: int, trial: int) -> None:
        """Remember that a trial was promoted from a rung."""
        self.promoted[rung].append(trial)

    def to_json(self) -> dict[str, Any]:
        """Return the rungs' results and promotions as plain data."""
        return {
            str(rung): {
                "results": [[trial, value] for trial, value in self.results[rung].items()],
                "promoted": list(self.promoted[rung]),
            }
            for rung in self.rungs
        }

    def load_json(self, document: dict[str, Any]) -> None:
        """Take over results and promotions that `to_json` gave."""
        for rung in self.rungs:
            entry = document.get(str(rung), {"results": [], "promoted": []})
            self.results[rung] = {int(trial): value for trial, value in entry["results"]}
            self.promoted[rung] = [int(trial) for trial in entry["promoted"]]
