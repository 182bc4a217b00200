"""A workload's data as batches: tensors on the device, an order that depends on (seed, epoch) only.

Tensor data is shuffled once per epoch and cut into slices; map-style datasets (augmentation, files) are asked
sample by sample. A last batch of one sample is folded into the one before it where the model has BatchNorm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.data import TensorDataset, default_collate

from tuning.core.errors import WorkloadError
from tuning.core.search import derive_seed
from tuning.core.workload import Workload

VALIDATION_BATCHES = (64, 1024)  # samples at least and at most
VALIDATION_BYTES = 1 << 18  # of inputs in a batch: what a model makes of them then stays near the caches


class ReadConfig(dict[str, Any]):
    """A configuration that remembers which of its names were looked at."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.read.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        self.read.update(super().keys())
        return super().keys()

    def items(self) -> Any:
        self.read.update(super().keys())
        return super().items()

    def values(self) -> Any:
        self.read.update(super().keys())
        return super().values()


@dataclass
class Samples:
    """One split: tensors of (samples, ...) on the device, or a map-style dataset."""

    source: Any
    inputs: Tensor | None
    targets: Tensor | None
    device: torch.device

    def __len__(self) -> int:
        return len(self.source) if self.inputs is None else len(self.inputs)

    def batch_of_bytes(self, size: int, least: int, most: int) -> int:
        """Return how many samples have inputs of so many bytes, within limits; all equal on every device."""
        if self.inputs is None or not self.inputs.numel():
            return most
        each = self.inputs.nbytes // len(self.inputs)
        return min(most, max(least, size // max(each, 1)))

    def shuffled(self, seed: int, epoch: int) -> "tuple[Samples, Tensor | None]":
        """Return the samples in the order of an epoch: moved, or, for a dataset, the order itself."""
        generator = torch.Generator().manual_seed(derive_seed(seed, "epoch", epoch))
        order = torch.randperm(len(self), generator=generator)
        if self.inputs is None or self.targets is None:
            return self, order
        order = order.to(self.device)
        return Samples(self.source, self.inputs[order], self.targets[order], self.device), None

    def take(self, start: int, end: int, order: Tensor | None = None) -> tuple[Any, Any]:
        """Return the batch between two positions (of `order`, where one is given)."""
        if self.inputs is not None and self.targets is not None:
            return self.inputs[start:end], self.targets[start:end]
        positions: Sequence[int] = range(start, end) if order is None else order[start:end].tolist()
        batch = default_collate([self.source[index] for index in positions])
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise WorkloadError("a dataset's items must be (input, target)")
        inputs, targets = tree_map(
            lambda value: value.to(self.device) if isinstance(value, Tensor) else value, tuple(batch)
        )
        return inputs, targets


def batch_bounds(samples: int, batch_size: int, fold_single: bool) -> list[tuple[int, int]]:
    """Return the bounds of an epoch's batches; the last may be smaller, or one larger where it is folded."""
    starts = list(range(0, samples, batch_size))
    bounds = [(start, min(start + batch_size, samples)) for start in starts]
    if fold_single and len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] == 1:
        bounds[-2:] = [(bounds[-2][0], bounds[-1][1])]
    return bounds


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether training on one sample is impossible because of BatchNorm."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(module, _BatchNorm) for module in model.modules())


def batch_statistics(model: nn.Module) -> str | None:
    """Return the kind of a layer whose training depends on the batch as a whole; None where there is none."""
    from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

    for module in model.modules():
        running = isinstance(module, _NormBase) and module.track_running_stats
        if isinstance(module, _BatchNorm) or running:
            return type(module).__name__
    return None


@dataclass
class Data:
    """The training and validation samples of a workload."""

    train: Samples
    validation: Samples

    def training_batches(
        self, seed: int, epoch: int, batch_size: int, fold_single: bool
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the batches of one epoch in the order that (seed, epoch) gives."""
        samples, order = self.train.shuffled(seed, epoch)
        for start, end in batch_bounds(len(samples), batch_size, fold_single):
            yield samples.take(start, end, order)

    def training_shares(
        self, seed: int, epoch: int, batch_size: int, rank: int, ranks: int
    ) -> Iterator[tuple[Any, Any, float]]:
        """Yield what one of several ranks takes of each of the same batches, and its share of the samples.

        A rank that gets no sample of a small batch is given one of the others' all the same, with a share of
        zero: every rank must take part in every step.
        """
        samples, order = self.train.shuffled(seed, epoch)
        for start, end in batch_bounds(len(samples), batch_size, fold_single=False):
            low = start + (end - start) * rank // ranks
            high = start + (end - start) * (rank + 1) // ranks
            inputs, targets = samples.take(low, max(high, low + 1), order)
            yield inputs, targets, (high - low) / (end - start)

    def validation_batches(self) -> Iterator[tuple[Any, Any]]:
        """Yield the validation samples in their own order."""
        size = self.validation.batch_of_bytes(VALIDATION_BYTES, *VALIDATION_BATCHES)
        for start, end in batch_bounds(len(self.validation), size, fold_single=False):
            yield self.validation.take(start, end)

    def example_inputs(self) -> Any:
        """Return two training inputs, for tracing."""
        inputs, _ = self.train.take(0, min(2, len(self.train)))
        return tuple(inputs) if isinstance(inputs, list) else inputs


@dataclass(frozen=True, eq=False)
class _Loaded:
    """Data that was made; the workload is held, so that no later one is taken for it."""

    workload: Workload
    device: str
    values: tuple[tuple[str, str], ...]
    data: Data


_LOADED: list[_Loaded] = []


def load_data(workload: Workload, config: Mapping[str, Any], device: str) -> Data:
    """Return a workload's data on a device; made once per process for equal values of what `data` reads."""
    read = ReadConfig(config)
    for one in _LOADED:
        if one.workload is workload and one.device == device and matches(one.values, config):
            return one.data
    train, validation = _call_data(workload, read)
    where = torch.device(device)
    data = Data(_samples(train, where, "train"), _samples(validation, where, "validation"))
    _LOADED.append(_Loaded(workload, device, read_values(read, config), data))
    return data


def read_values(read: ReadConfig, config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the names that were read and what they were, as a key."""
    return tuple((name, repr(config.get(name))) for name in sorted(read.read))


def matches(values: tuple[tuple[str, str], ...], config: Mapping[str, Any]) -> bool:
    """Return whether a configuration has the values of a key that `read_values` made."""
    return all(repr(config.get(name)) == value for name, value in values)


def _call_data(workload: Workload, config: Mapping[str, Any]) -> tuple[Any, Any]:
    pair = workload.data(config)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise WorkloadError(f"{workload.title()}: data(config) must return (train, validation)")
    return pair[0], pair[1]


def _samples(split: Any, device: torch.device, name: str) -> Samples:
    if isinstance(split, TensorDataset):
        split = split.tensors
    if isinstance(split, tuple | list) and len(split) == 2 and all(isinstance(t, Tensor) for t in split):
        inputs, targets = split
        if len(inputs) != len(targets):
            raise WorkloadError(f"{name} data has {len(inputs)} inputs and {len(targets)} targets")
        samples = Samples(split, inputs.to(device), targets.to(device), device)
    elif hasattr(split, "__getitem__") and hasattr(split, "__len__"):
        samples = Samples(split, None, None, device)
    else:
        raise WorkloadError(f"{name} data must be (inputs, targets) tensors or a map-style dataset")
    if not len(samples):
        raise WorkloadError(f"{name} data is empty")
    return samples
