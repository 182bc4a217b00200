"""What people write to have a program captured: `forebay.Program`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Groups = Mapping[str, Sequence[int] | Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Program:
    """One rank's part of a model-parallel program.

    Attributes:
        step: `step(params, inputs)` gives outputs, or the loss with `train`; it communicates with functional
            collectives (`torch.distributed._functional_collectives`) and names groups as `groups` does.
        params, inputs: tensors, or shapes (of float32) whose values do not matter.
        groups: name to ranks; ranks that it does not list form groups of the same pattern.
        batch_dims: the batch dimension of each input that has one, else null.
        train: capture the gradients of all floating-point parameters with the loss.
        rehearsal: the same program at a size that can be executed here, for the check of the numbers.
    """

    step: Callable[[dict[str, Any], dict[str, Any]], Any]
    params: Mapping[str, Any]
    inputs: Mapping[str, Any]
    groups: Groups
    batch_dims: Mapping[str, int | None]
    train: bool = False
    rehearsal: "Callable[[], Program] | None" = None
