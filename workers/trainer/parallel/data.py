"""The text of pydoc-gpt as samples of varying length, packed into micro-batches; the cursor is one number.

A sample is a paragraph of the language reference inside Python, cut where it is longer than the context.
Samples are drawn pass by pass, each pass in an order of its own; draw number d belongs to pass d // N. The
draws of an iteration depend on the cursor alone and never on who runs them.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.trainer.parallel.spec import SHORTEST


@dataclass(frozen=True)
class PackedBatch:
    """A micro-batch: sequences laid end to end.

    `codes_T` and `targets_T` hold characters and the ones that follow them, `positions_T` the place of each
    inside its sequence, `lengths` the tokens of each sequence, `samples` their identifiers
    (pass * corpus size + sample).
    """

    index: int
    codes_T: Tensor
    targets_T: Tensor
    positions_T: Tensor
    lengths: tuple[int, ...]
    samples: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Characters to predict."""
        return sum(self.lengths)

    @property
    def sum_squared_lengths(self) -> int:
        """What attention costs."""
        return sum(length * length for length in self.lengths)


@dataclass(frozen=True)
class Corpus:
    """The text as symbol codes, and where each sample starts and how many tokens it predicts."""

    codes: Tensor
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    symbols: int

    def __len__(self) -> int:
        return len(self.starts)


@cache
def load_corpus(context: int) -> Corpus:
    """Read the text inside Python's standard library."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = {symbol: code for code, symbol in enumerate(sorted(set(text)))}
    starts, lengths, at = [], [], 0
    for paragraph in text.split("\n\n"):
        for begin in range(0, len(paragraph), context):
            tokens = min(context, len(paragraph) - begin - 1)
            if tokens >= SHORTEST:
                starts.append(at + begin)
                lengths.append(tokens)
        at += len(paragraph) + 2
    codes = torch.tensor([alphabet[symbol] for symbol in text])
    return Corpus(codes, np.array(starts), np.array(lengths), len(alphabet))


class Packer:
    """Cuts the stream of draws into micro-batches of at most `budget` tokens, each of one sample or more."""

    def __init__(self, corpus: Corpus, budget: int, seed: int) -> None:
        self.corpus, self.budget, self.seed = corpus, budget, seed
        self._pass = -1
        self._order = np.empty(0, dtype=np.int64)

    def pack(self, cursor: int, count: int) -> tuple[list[list[int]], int]:
        """Return the sample identifiers of the next `count` micro-batches, and the cursor after them."""
        batches: list[list[int]] = []
        for _ in range(count):
            batch: list[int] = []
            room = self.budget
            while not batch or self._length(cursor) <= room:
                batch.append(self._sample(cursor))
                room -= self._length(cursor)
                cursor += 1
            batches.append(batch)
        return batches, cursor

    def tokens(self, samples: list[int]) -> int:
        """Tokens of a micro-batch."""
        return int(self.corpus.lengths[np.array(samples) % len(self.corpus)].sum())

    def batch(self, index: int, samples: list[int], device: torch.device) -> PackedBatch:
        """Return the tensors of one micro-batch, on a device."""
        corpus, codes, targets, places = self.corpus, [], [], []
        rows = [sample % len(corpus) for sample in samples]
        for row in rows:
            start, length = int(corpus.starts[row]), int(corpus.lengths[row])
            codes.append(corpus.codes[start : start + length])
            targets.append(corpus.codes[start + 1 : start + length + 1])
            places.append(torch.arange(length))
        lengths = tuple(int(corpus.lengths[row]) for row in rows)
        codes_T, targets_T, places_T = (torch.cat(part).to(device) for part in (codes, targets, places))
        return PackedBatch(index, codes_T, targets_T, places_T, lengths, tuple(samples))

    def _sample(self, draw: int) -> int:
        number, place = divmod(draw, len(self.corpus))
        if number != self._pass:
            self._pass = number
            self._order = np.random.default_rng([self.seed, number]).permutation(len(self.corpus))
        return number * len(self.corpus) + int(self._order[place])

    def _length(self, draw: int) -> int:
        return int(self.corpus.lengths[self._sample(draw) % len(self.corpus)])
