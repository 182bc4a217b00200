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
# what makes a parameter of another type out of one that has been drawn
_CONVERSIONS = frozenset(("to", "type", "double", "float", "half", "bfloat16", "clone"))


@dataclass(frozen=True)
class _Step:
    """One in-place operation on a part of a parameter: (sizes, strides, offset) inside its storage."""

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    part: tuple[tuple[int, ...], tuple[int, ...], int]
    dtype: torch.dtype


class _Recorder(TorchFunctionMode):
    """Watches calls of initialisers. (A dispatch mode would see more, and import for two seconds first.)"""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, _Step]] = []
        self.origins: dict[int, tuple[int, int]] = {}  # storage -> the one it was made from, steps by then
        # the address of a storage that is freed becomes that of another one
        self.held: list[torch.UntypedStorage] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        initialiser = getattr(func, "__module__", None) == "torch.nn.init"
        if name in _REPEATABLE or initialiser:
            self._note_step(func, args, options)
        result = func(*args, **options)
        if name in _CONVERSIONS and args and isinstance(result, Tensor):
            self._note_conversion(args[0], result)
        return result

    def _note_step(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        # the functions of torch.nn.init hand their tensor on by keyword
        tensor = args[0] if args else options.get("tensor")
        rest = {key: value for key, value in options.items() if key != "tensor"}
        plain = not any(isinstance(value, Tensor) for value in (*args[1:], *rest.values()))
        if plain and isinstance(tensor, Tensor) and _has_storage(tensor):
            part = (tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset()))
            step = _Step(func, tuple(args[1:]), rest, part, tensor.dtype)
            self.steps.append((self._hold(tensor), step))

    def _note_conversion(self, before: Any, after: Tensor) -> None:
        if not (isinstance(before, Tensor) and _has_storage(before) and _has_storage(after)):
            return
        alike = before.stride() == after.stride() and before.storage_offset() == after.storage_offset() == 0
        if alike and before.untyped_storage().data_ptr() != after.untyped_storage().data_ptr():
            self.origins[self._hold(after)] = (self._hold(before), len(self.steps))

    def _hold(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        self.held.append(storage)
        return storage.data_ptr()

    def steps_of(self, tensor: Tensor) -> list[tuple[int, _Step]]:
        """Return how a tensor came to its values: number and step, those of what it was made from first."""
        storage, until = tensor.untyped_storage().data_ptr(), len(self.steps)
        lines = [(storage, until)]
        while storage in self.origins:
            storage, until = self.origins[storage]
            lines.append((storage, until))
        return [
            (number, step)
            for number, (owner, step) in enumerate(self.steps)
            if any(owner == storage and number < until for storage, until in lines)
        ]


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
                fresh[name] = fresh[name].to(step.dtype)  # of another type where it was converted later
                step.function(torch.as_strided(fresh[name], *step.part), *step.arguments, **step.options)
        return {name: tensor.to(template[name].dtype) for name, tensor in fresh.items()}


def record_draws(build: Callable[[], nn.Module]) -> tuple[nn.Module, Draws]:
    """Build a module on the CPU and return it with the record of how its parameters were drawn."""
    with _Recorder() as recorder:
        module = build()
    owners = {p.untyped_storage().data_ptr(): (name, p) for name, p in module.named_parameters()}
    found = [
        (number, name, step)
        for name, parameter in owners.values()
        for number, step in recorder.steps_of(parameter)
    ]
    return module, Draws([(name, step) for _, name, step in sorted(found, key=lambda one: one[:2])])
