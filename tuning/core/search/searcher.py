"""The seam between a study and a search method, and the log that rebuilds a searcher.

A searcher's state is a function of its arguments and of what was asked and told in which order; the log is
that order, so a study that died rebuilds its searcher by replaying it.
"""

from typing import Any, Protocol

from tuning.core.errors import Problem, SearchError, SpecError
from tuning.core.search.optuna_search import SAMPLERS, OptunaSearch
from tuning.core.search.points import GridSearch, RandomSearch
from tuning.core.space import Config, Space

SEARCHES = ("random", "grid", *SAMPLERS)


class Searcher(Protocol):
    """Gives configurations, learns from results."""

    batch: int | None
    """How many configurations to ask for before results are in; None where results do not matter."""

    def ask(self, count: int) -> list[Config]:
        """Return up to `count` configurations; fewer means that there are no more."""

    def tell(self, number: int, value: float | None) -> None:
        """Learn the final metric of a trial; None is a failure."""


def make_searcher(name: str, space: Space, seed: int, mode: str, duplicates: str = "avoid") -> Searcher:
    """Return a fresh searcher; SearchError for an unknown name or a space it cannot search."""
    if name == "random":
        return RandomSearch(space, seed, duplicates)
    if name == "grid":
        check_grid(space)
        return GridSearch(space)
    return OptunaSearch(name, space, seed, mode)


def check_grid(space: Space) -> None:
    """Raise SearchError unless every range of the space is finite."""
    try:
        next(space.grid(), None)
    except SpecError as error:
        raise SearchError("; ".join(f"{p.pointer[1:]} {p.detail}" for p in error.problems)) from error


class LoggedSearcher:
    """A searcher that remembers what it was asked and told."""

    def __init__(self, searcher: Searcher, log: list[list[Any]] | None = None) -> None:
        self.searcher = searcher
        self.log: list[list[Any]] = []
        for entry in log or []:
            self._replay(entry)

    @property
    def batch(self) -> int | None:
        """See `Searcher.batch`."""
        return self.searcher.batch

    def ask(self, count: int) -> list[Config]:
        """Ask the searcher and remember it."""
        self.log.append(["ask", count])
        return self.searcher.ask(count)

    def tell(self, number: int, value: float | None) -> None:
        """Tell the searcher and remember it, where results matter."""
        if self.searcher.batch is not None:
            self.log.append(["tell", number, value])
            self.searcher.tell(number, value)

    def _replay(self, entry: list[Any]) -> None:
        if entry[0] == "ask":
            self.ask(entry[1])
        elif entry[0] == "tell":
            self.tell(entry[1], entry[2])
        else:
            raise SpecError([Problem("/search_log", f"has an unknown entry {entry[0]!r}")])
