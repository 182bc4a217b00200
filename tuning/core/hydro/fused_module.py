"""Many trials as one module: stacked parameters under the user's names, and the graph that runs them."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.likeness import tie_names
from tuning.core.hydro.memory_order import dropout_orders
from tuning.core.hydro.nested import map_tensors, tensors_in
from tuning.core.hydro.program import Program, compile_program
from tuning.core.hydro.random_streams import RandomStreams
from tuning.core.hydro.tracing import trace
from tuning.core.hydro.tracing.leaves import is_leaf

_EXAMPLE_TRIALS = 2


class Blueprint:
    """What containers of one shape have in common: the user's model, its inputs and the compiled programs.

    Containers that come from one another by defusing or merging share it, so that repacking compiles nothing.
    """

    def __init__(self, template: nn.Module, example_inputs: Any, shared_names: frozenset[str]) -> None:
        self.template = template
        self.example_inputs = example_inputs
        self.shared_names = shared_names
        self.aliases = tie_names(template)
        self.trainable = {name: parameter.requires_grad for name, parameter in template.named_parameters()}
        self.prefix = ""
        self.signature = inspect.signature(template.forward)
        try:
            self.examples = _flat(self.signature, *as_call(example_inputs))
        except TypeError as error:
            raise FuseError(f"example_inputs do not fit {type(template).__name__}: {error}") from None
        self.traced = self._wrapped() if is_leaf(template) else trace(template, example_inputs)
        self.programs: dict[bool, Program] = {}

    def _wrapped(self) -> Any:
        """A single layer, traced as the one child of a module so that it is a node of the graph."""
        self.prefix = "0."
        return trace(nn.Sequential(self.template), _positional(self.template, self.example_inputs))

    def program(self, training: bool, tensors: Mapping[str, Tensor]) -> Program:
        """The compiled graph of one mode; compiled at first use."""
        if training not in self.programs:
            few = {
                name: tensor if name in self.shared_names else _first_trials(tensor)
                for name, tensor in tensors.items()
            }
            streams = RandomStreams([0] * _EXAMPLE_TRIALS, next(iter(tensors.values())).device)
            was_training = self.traced.training
            self.traced.train(training)
            try:
                self.programs[training] = compile_program(
                    self.traced,
                    few,
                    self.shared_names,
                    self.aliases,
                    streams,
                    list(self.examples.values()),
                    self.prefix,
                    dropout_orders(self.traced, list(self.examples.values())) if training else None,
                )
            finally:
                self.traced.train(was_training)
        return self.programs[training]


class FusedModule(nn.Module):
    """F trials of one model. Called with one ordinary batch, it returns every output as ``(F, N, ...)``.

    Parameters and buffers keep the user's names and have a leading trial dimension. Made by ``hydro.fuse``.
    """

    _blueprint: Blueprint
    _streams: RandomStreams
    _arguments: list[Tensor]

    def __init__(self, blueprint: Blueprint, tensors: Mapping[str, Tensor], streams: RandomStreams) -> None:
        super().__init__()
        vars(self).update(_blueprint=blueprint, _streams=streams)
        program = blueprint.program(True, tensors)
        for name, tensor in tensors.items():
            if name not in blueprint.shared_names and name in program.orders:
                tensor = _ordered(tensor, program.orders[name])
            self._hold(name, tensor, is_parameter=name in blueprint.trainable)
        for alias, owner in blueprint.aliases.items():
            self._hold(alias, self._held(owner), is_parameter=owner in blueprint.trainable)
        vars(self)["_arguments"] = [self._held(name) for name in tensors]
        self.training = blueprint.template.training

    @property
    def trials(self) -> int:
        """F, the number of trials."""
        return len(self._streams)

    @property
    def seeds(self) -> list[int]:
        """The seed of every trial's random stream."""
        return list(self._streams.seeds)

    @property
    def streams(self) -> RandomStreams:
        return self._streams

    @property
    def blueprint(self) -> Blueprint:
        return self._blueprint

    @property
    def code(self) -> str:
        """The generated Python of the present mode, for people who want to see what runs."""
        return self._program().code

    @property
    def draws(self) -> bool:
        """Whether the present mode draws random numbers."""
        return self._program().code.count("streams") > 1

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by the user's name, tied ones once: ``(F, ...)``, or ``(...)`` if shared."""
        return dict(zip(self._blueprint.programs[True].names, self._arguments, strict=True))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        program = self._program()
        inputs = self._inputs(args, kwargs)
        return program.run(self.trials, self._streams, *self._arguments, *program.constants, *inputs)

    def _program(self) -> Program:
        found = self._blueprint.programs.get(self.training)
        return found or self._blueprint.program(self.training, self.tensors())

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        examples = self._blueprint.examples
        try:
            given = _flat(self._blueprint.signature, args, kwargs)
        except TypeError as error:
            raise FuseError(f"these inputs do not fit the model: {error}") from None
        if given.keys() != examples.keys():
            odd = sorted(given.keys() ^ examples.keys())[0]
            raise FuseError(
                f"input {odd!r} was given to only one of fuse() and this call: give the same inputs"
            )
        for name, example in examples.items():
            if not tensors_in(example) and given[name] != example:
                raise FuseError(
                    f"input {name!r} is {given[name]!r} here and was {example!r} in example_inputs: values "
                    "that are no tensors are fixed when fusing"
                )
        return list(given.values())

    def _hold(self, name: str, tensor: Tensor, *, is_parameter: bool) -> None:
        """Register a tensor under the user's dotted name."""
        *path, leaf = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                if hasattr(owner, part):
                    raise FuseError(f"layer name '{part}' is taken by nn.Module itself: rename it")
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]  # type: ignore[assignment]
        if is_parameter:
            # A tied parameter comes here again under its other names, as the same object.
            if not isinstance(tensor, nn.Parameter):
                tensor = nn.Parameter(tensor, self._blueprint.trainable[name])
            owner.register_parameter(leaf, tensor)
        else:
            owner.register_buffer(leaf, tensor, persistent=self._is_persistent(name))

    def _is_persistent(self, name: str) -> bool:
        path, _, leaf = name.rpartition(".")
        return leaf not in self._blueprint.template.get_submodule(path)._non_persistent_buffers_set

    def _held(self, name: str) -> Tensor:
        path, _, leaf = name.rpartition(".")
        return getattr(self.get_submodule(path), leaf)

    def _apply(self, fn: Any, recurse: bool = True) -> "FusedModule":
        for name, tensor in self.tensors().items():
            moved = fn(tensor)
            if moved.dtype != tensor.dtype or moved.device != tensor.device:
                raise FuseError(
                    f"{name} cannot change to {moved.dtype} on {moved.device}: fuse models that are there"
                )
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "FusedModule":
        twin = clone(self, range(self.trials))
        memo[id(self)] = twin
        return twin

    def __reduce__(self) -> Any:
        blueprint = self._blueprint
        parts = (blueprint.template, blueprint.example_inputs, blueprint.shared_names)
        tensors = {name: tensor.detach() for name, tensor in self.tensors().items()}
        return _rebuilt, (*parts, tensors, self.seeds, self._streams.states(), self.training)


def _rebuilt(
    template: nn.Module,
    example_inputs: Any,
    shared_names: frozenset[str],
    tensors: dict[str, Tensor],
    seeds: list[int],
    states: Tensor,
    training: bool,
) -> FusedModule:
    streams = RandomStreams(seeds, next(iter(tensors.values())).device)
    streams.restore(seeds, states)
    fused = FusedModule(Blueprint(template, example_inputs, shared_names), tensors, streams)
    return fused.train(training)


def clone(fused: FusedModule, keep: Sequence[int]) -> FusedModule:
    """An independent container of some trials of another one."""
    return joined([(fused, index) for index in keep])


def joined(parts: Sequence[tuple[FusedModule, int]]) -> FusedModule:
    """A container of trials of other containers that have one blueprint, from copies of their tensors."""
    first = parts[0][0]
    blueprint = first.blueprint
    held = {id(source): source.tensors() for source, _ in parts}
    tensors: dict[str, Tensor] = {}
    for name, tensor in held[id(first)].items():
        if name in blueprint.shared_names:
            tensors[name] = tensor.detach().clone()
        else:
            tensors[name] = torch.stack([held[id(source)][name].detach()[index] for source, index in parts])
    streams = RandomStreams.joined([(source.streams, index) for source, index in parts])
    return FusedModule(blueprint, tensors, streams).train(first.training)


def in_double(fused: FusedModule) -> FusedModule:
    """The same trials in double precision, traced anew, from copies of their tensors."""
    blueprint = fused.blueprint
    template = copy.deepcopy(blueprint.template).double()
    inputs = map_tensors(_doubled, blueprint.example_inputs)
    tensors = {name: _doubled(tensor.detach().clone()) for name, tensor in fused.tensors().items()}
    streams = RandomStreams.joined([(fused.streams, index) for index in range(fused.trials)])
    twin = FusedModule(Blueprint(template, inputs, blueprint.shared_names), tensors, streams)
    return twin.train(fused.training)


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def write_trial(fused: FusedModule, index: int, model: nn.Module) -> nn.Module:
    """Copy one trial's parameters and buffers into a model of the user's class."""
    tensors, shared = fused.tensors(), fused.blueprint.shared_names
    with torch.no_grad():
        for name, target in [*model.named_parameters(), *model.named_buffers()]:
            source = tensors.get(name)
            if source is None:  # a constant of the recorded graph
                continue
            target.copy_(source if name in shared else source[index])
    return model


def extract(fused: FusedModule, index: int) -> nn.Module:
    """Trial ``index`` as an ordinary module of the user's class, independent of the container.

    Raises ``FuseError`` for a trial that the container does not have.
    """
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < fused.trials:
        raise FuseError(f"trial {index!r} is not in this container of {fused.trials}: count from 0")
    model = write_trial(fused, index, copy.deepcopy(fused.blueprint.template))
    return model.train(fused.training)


def _ordered(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """The same values, with the dimensions in memory in this order."""
    if len(order) != tensor.dim():
        return tensor
    inverse = [order.index(dim) for dim in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(inverse)


def _first_trials(tensor: Tensor) -> Tensor:
    repeats = -(-_EXAMPLE_TRIALS // tensor.shape[0])
    return torch.cat([tensor.detach()] * repeats)[:_EXAMPLE_TRIALS]


def as_call(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    return (example_inputs,), {}


def _positional(module: nn.Module, example_inputs: Any) -> tuple[Any, ...]:
    args, kwargs = as_call(example_inputs)
    return tuple(inspect.signature(module.forward).bind(*args, **kwargs).arguments.values())


def _flat(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Inputs by name in the order of the signature; starred parameters one by one."""
    flat: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            flat.update({f"{name}_{index}": item for index, item in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            flat.update(value)
        else:
            flat[name] = value
    return flat
