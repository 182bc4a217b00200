"""Durable files: tensors and plain values only, written beside and renamed into place."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tuning.core.errors import TuningError

MOST_OVERHEAD = 0.05  # checkpoints may take this share of the time, the last one of a run excepted


def write(path: Path, content: Mapping[str, Any]) -> str:
    """Save tensors and plain values; the file is complete or absent. Returns the path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    torch.save(dict(content), part)
    os.replace(part, path)
    return str(path)


def read(path: str) -> dict[str, Any]:
    """Load a file that `write` made; it cannot run code. TuningError where it is missing or damaged."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise TuningError(f"checkpoint {path} cannot be read: {type(error).__name__}: {error}") from error
    return content


def write_model(path: Path, tensors: Mapping[str, Tensor], card: Mapping[str, Any]) -> str:
    """Save weights as safetensors and what they are as JSON beside them. Returns the path as text."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    # tied weights are one storage under two names, which safetensors refuses: each name gets its own
    owned = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(owned, part, metadata={"format": "pt"})
    os.replace(part, path)
    path.with_suffix(".json").write_text(json.dumps(card, indent=2, allow_nan=False, default=str))
    return str(path)


class Schedule:
    """When to write: every `every` epochs, unless that would take more than `most_overhead` of the time."""

    def __init__(self, every: int, most_overhead: float = MOST_OVERHEAD) -> None:
        self.every, self.most_overhead = every, most_overhead
        self.last_epoch = 0
        self.last_s = time.perf_counter()
        self.cost_s = 0.0

    def due(self, epoch: int) -> bool:
        """Return whether a checkpoint should be written after this epoch."""
        since = time.perf_counter() - self.last_s
        return epoch - self.last_epoch >= self.every and since * self.most_overhead >= self.cost_s

    def written(self, epoch: int, cost_s: float) -> None:
        """Note that one was written and what it cost."""
        self.last_epoch, self.last_s, self.cost_s = epoch, time.perf_counter(), cost_s
