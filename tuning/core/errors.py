"""The tuner's errors: what is wrong, where it stands, and which rule it breaks."""

from collections.abc import Iterable
from dataclasses import dataclass


class TuningError(Exception):
    """Anything the tuner refuses; the message names the field and the rule."""


@dataclass(frozen=True, order=True)
class Problem:
    """One broken rule: a JSON Pointer (RFC 6901) to the value and one sentence about it."""

    pointer: str
    detail: str


class SpecError(TuningError):
    """A study specification, a space or a workload with wrong fields; `problems` names each of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "; ".join(f"{problem.pointer or '/'}: {problem.detail}" for problem in self.problems)
        )


class SearchError(TuningError):
    """A search method that cannot work on this space."""


class WorkloadError(TuningError):
    """A workload that cannot be found, loaded or used."""


class SnapshotError(TuningError):
    """A snapshot that this version of the study cannot read."""


def escape(token: str) -> str:
    """Return a key as one reference token of a JSON Pointer."""
    return token.replace("~", "~0").replace("/", "~1")
