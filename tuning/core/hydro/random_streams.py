"""One random stream per trial, so that dropout does not depend on who shares the container.

A stream draws what ``torch.manual_seed(seed)`` followed by ordinary training would draw: a trial's masks are
those of the plain model trained alone, whatever F is and wherever defusing or merging takes the trial.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tuning.core.hydro.errors import FuseError

_SEED_LIMIT = 2**63


class RandomStreams:
    """The seeds and generators of F trials, all on one device."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.seeds = list(seeds)
        self.device = device
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in self.seeds]

    def __len__(self) -> int:
        return len(self.seeds)

    def keep_mask(
        self,
        shape: Sequence[int],
        keep_probability: float,
        dtype: torch.dtype,
        order: Sequence[int] | None = None,
    ) -> Tensor:
        """0 or 1 / keep_probability, of ``(F, *shape)``; each trial's part from its own stream.

        ``order`` lists the dimensions of ``shape`` in the order of drawing, the fastest last.
        """
        if order is not None:
            drawn = self.keep_mask([shape[dim] for dim in order], keep_probability, dtype)
            return drawn.permute(0, *(1 + list(order).index(dim) for dim in range(len(shape))))
        mask = torch.empty((len(self), *shape), dtype=dtype, device=self.device)
        for row, generator in zip(mask.unbind(0), self.generators, strict=True):
            row.bernoulli_(keep_probability, generator=generator)
        return mask.div_(keep_probability) if keep_probability > 0.0 else mask

    def select(self, keep: Sequence[int]) -> "RandomStreams":
        """Independent copies of some streams, each where the original now is."""
        return self.joined([(self, index) for index in keep])

    @staticmethod
    def joined(parts: Sequence[tuple["RandomStreams", int]]) -> "RandomStreams":
        """A container's streams from streams of other containers, at their present positions."""
        streams = RandomStreams([source.seeds[index] for source, index in parts], parts[0][0].device)
        for generator, (source, index) in zip(streams.generators, parts, strict=True):
            generator.set_state(source.generators[index].get_state())
        return streams

    def states(self) -> Tensor:
        """Positions of all streams, ``(F, bytes)``."""
        return torch.stack([generator.get_state() for generator in self.generators])

    def restore(self, seeds: Sequence[int], states: Tensor) -> None:
        """Continue from positions that ``states`` returned."""
        if len(seeds) != len(self) or len(states) != len(self):
            raise FuseError(f"random streams of {len(states)} trials cannot continue {len(self)} trials")
        self.seeds = [int(seed) for seed in seeds]
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state.clone())


def seeds_for(seeds: Sequence[int] | None, trials: int) -> list[int]:
    """The given seeds, checked, or fresh ones from PyTorch's global stream."""
    if seeds is None:
        return [int(seed) for seed in torch.randint(_SEED_LIMIT - 1, (trials,))]
    listed = list(seeds)
    if len(listed) != trials:
        raise FuseError(f"seeds has {len(listed)} values for {trials} models: give one per model")
    for seed in listed:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < _SEED_LIMIT:
            raise FuseError(f"seeds holds {seed!r}: a seed is an integer from 0 to 2**63 - 1")
    return listed
