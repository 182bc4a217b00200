"""Records how the parameters of a module were drawn, so that they can be drawn again under another seed.

Building a surrogate takes tens of milliseconds, drawing its weights takes microseconds, and a container needs
the weights of dozens of trials of one shape. A trial's weights are a function of the shape's template and the
trial's own seed, whichever container it is in.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# in-place operations of initialisers that take numbers only; everything else leaves the template's values
_REPEATABLE = frozenset(
    (
        "uniform_",
        "normal_",
        "fill_",
        "zero_",
        "erfinv_",
        "mul_",
        "add_",
        "clamp_",
        "exponential_",
        "bernoulli_",
    )
)


@dataclass(frozen=True)
class _Step:
    """One in-place operation on a part of a parameter: (sizes, strides, offset) inside its storage."""

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    part: tuple[tuple[int, ...], tuple[int, ...], int]


class _Recorder(TorchFunctionMode):
    """Watches calls of initialisers. (A dispatch mode would see more, and import for two seconds first.)"""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, _Step]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        initialiser = getattr(func, "__module__", None) == "torch.nn.init"
        if name in _REPEATABLE or initialiser:
            # the functions of torch.nn.init hand their tensor on by keyword
            tensor = args[0] if args else options.get("tensor")
            rest = {key: value for key, value in options.items() if key != "tensor"}
            plain = not any(isinstance(value, Tensor) for value in (*args[1:], *rest.values()))
            if plain and isinstance(tensor, Tensor) and _has_storage(tensor):
                part = (tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset()))
                step = _Step(func, tuple(args[1:]), rest, part)
                self.steps.append((tensor.untyped_storage().data_ptr(), step))
        return func(*args, **options)


def _has_storage(tensor: Tensor) -> bool:
    return tensor.device.type != "meta" and type(tensor) in (Tensor, nn.Parameter)


@dataclass
class Draws:
    """The recorded operations, in order, by parameter name."""

    steps: list[tuple[str, _Step]]

    def names(self) -> list[str]:
        """Return the parameters that are drawn anew."""
        return list(dict.fromkeys(name for name, _ in self.steps))

    @torch.no_grad()
    def draw(self, template: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
        """Return fresh values of the drawn parameters; the others keep the template's."""
        fresh = {name: template[name].detach().clone() for name in self.names()}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for name, step in self.steps:
                step.function(torch.as_strided(fresh[name], *step.part), *step.arguments, **step.options)
        return fresh


def record_draws(build: Callable[[], nn.Module]) -> tuple[nn.Module, Draws]:
    """Build a module on the CPU and return it with the record of how its parameters were drawn."""
    with _Recorder() as recorder:
        module = build()
    owners = {p.untyped_storage().data_ptr(): name for name, p in module.named_parameters()}
    steps = [(owners[storage], step) for storage, step in recorder.steps if storage in owners]
    return module, Draws(steps)
