"""Searches that do not look at results: random draws and grids."""

import random
from collections.abc import Iterator

from tuning.core.search.seeds import derive_seed
from tuning.core.space import Config, Space, fingerprint

ENUMERABLE = 100_000
DRAWS_BEFORE_ENUMERATION = 64


class RandomSearch:
    """Independent draws; in a finite space no configuration repeats until all were tried.

    The configuration of a trial depends on the seed, its number and, where repeats are avoided, on the
    configurations before it, never on results.
    """

    batch: int | None = None

    def __init__(self, space: Space, seed: int, duplicates: str = "avoid") -> None:
        self.space, self.seed, self.duplicates = space, seed, duplicates
        self.size = space.size(ENUMERABLE)
        self.number = 0
        self.seen: set[str] = set()

    def ask(self, count: int) -> list[Config]:
        """Return the next `count` configurations."""
        return [self._next() for _ in range(count)]

    def tell(self, number: int, value: float | None) -> None:
        """Random search learns nothing."""

    def _next(self) -> Config:
        rng = random.Random(derive_seed(self.seed, "search", self.number))
        self.number += 1
        if self.duplicates == "keep":
            return self.space.sample(rng)
        if len(self.seen) >= self.size:
            self.seen.clear()
        config = self._unseen(rng)
        self.seen.add(fingerprint(config))
        return config

    def _unseen(self, rng: random.Random) -> Config:
        enumerable = self.size <= ENUMERABLE
        for _ in range(DRAWS_BEFORE_ENUMERATION if enumerable else 10_000):
            config = self.space.sample(rng)
            if fingerprint(config) not in self.seen:
                return config
        if not enumerable:
            return config
        left = [c for c in self.space.grid() if fingerprint(c) not in self.seen]
        return rng.choice(left)


class GridSearch:
    """Every configuration of a finite space once, the first parameter varying slowest."""

    batch: int | None = None

    def __init__(self, space: Space) -> None:
        self.space = space
        self._left: Iterator[Config] = space.grid()

    def ask(self, count: int) -> list[Config]:
        """Return up to `count` more configurations; fewer means that the grid has ended."""
        return [config for _, config in zip(range(count), self._left, strict=False)]

    def tell(self, number: int, value: float | None) -> None:
        """A grid learns nothing."""
