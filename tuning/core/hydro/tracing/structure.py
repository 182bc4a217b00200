"""Inputs and outputs of a recorded forward pass: how user structures enter and leave the graph."""

import dataclasses
import inspect
import operator
from collections.abc import Mapping
from typing import Any

from torch import Tensor, fx, nn

from tuning.core.hydro.errors import TraceError
from tuning.core.hydro.tracing.recorder import Recorder


class BuildOutput(nn.Module):
    """Puts the tensors of a result back into the user's own class (a data class, a named tuple)."""

    traced_as_leaf = True

    def __init__(self, kind: type, fields: tuple[str, ...]) -> None:
        super().__init__()
        self.kind = kind
        self.fields = fields

    def forward(self, *values: Any) -> Any:
        return self.kind(**dict(zip(self.fields, values, strict=True)))


def bind_examples(model: nn.Module, example_inputs: Any) -> inspect.BoundArguments:
    """Match the example inputs with the parameters of ``model.forward``.

    ``example_inputs`` is a tensor, a tuple or list of positional inputs, or a mapping of keyword inputs.
    """
    args: tuple[Any, ...]
    if isinstance(example_inputs, Tensor):
        args, kwargs = (example_inputs,), {}
    elif isinstance(example_inputs, Mapping):
        args, kwargs = (), dict(example_inputs)
    elif isinstance(example_inputs, (tuple, list)):
        args, kwargs = tuple(example_inputs), {}
    else:
        kind = type(example_inputs).__name__
        raise TraceError(
            f"example_inputs is a {kind}: give a tensor, a tuple of inputs or a dict of keyword inputs"
        )
    if not _tensors(args) and not _tensors(kwargs):
        raise TraceError(
            "example_inputs holds no tensor: give one batch as the model receives it in training"
        )
    try:
        return inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise TraceError(f"example_inputs do not fit {type(model).__name__}.forward: {error}") from None


def check_examples(model: nn.Module, bound: inspect.BoundArguments) -> None:
    """Say plainly when inputs and weights disagree about device or floating-point type."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    if weight is None:
        return
    for name, tensor in _tensors(dict(bound.arguments)):
        if tensor.device != weight.device:
            raise TraceError(
                f"input '{name}' is on {tensor.device} and the model on {weight.device}: move one of them"
            )
        if tensor.is_floating_point() and tensor.dtype != weight.dtype:
            raise TraceError(
                f"input '{name}' is {tensor.dtype} and the model {weight.dtype}: "
                "convert one of them (model.float(), input.to(...))"
            )


def add_placeholders(recorder: Recorder, model: nn.Module, bound: inspect.BoundArguments) -> None:
    """One placeholder per input, in the order of the user's signature; nested structures are unpacked."""
    signature = inspect.signature(model.forward)
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            for index, item in enumerate(value):
                _placeholder(recorder, f"{name}_{index}", item)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            for key, item in value.items():
                _placeholder(recorder, key, item)
        else:
            _placeholder(recorder, name, value)


def _placeholder(recorder: Recorder, name: str, value: Any) -> None:
    default: tuple[Any, ...] = () if _tensors(value) else (value,)
    simple = isinstance(value, (int, float, bool, str, type(None)))
    node = recorder.graph.create_node("placeholder", name, default if simple else ())
    node.meta["owner"] = ""
    _unpack(recorder, node, value)


def _unpack(recorder: Recorder, node: fx.Node, value: Any) -> None:
    if isinstance(value, Tensor):
        recorder.bind(value, node)
        if recorder.device_source is None:
            recorder.device, recorder.device_source = value.device, node
        return
    items: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    for key, item in items:
        if _tensors(item):
            part = recorder.graph.call_function(operator.getitem, (node, key))
            part.meta["owner"] = ""
            _unpack(recorder, part, item)


def output_argument(recorder: Recorder, result: Any) -> Any:
    """The argument of the graph's output node for what the model returned."""
    if isinstance(result, (Tensor, int, float, bool, str, type(None))):
        return recorder.argument(result)
    if type(result) in (tuple, list):
        return type(result)(output_argument(recorder, item) for item in result)
    if type(result) is dict:
        return {key: output_argument(recorder, item) for key, item in result.items()}
    return _own_class(recorder, result)


def _own_class(recorder: Recorder, result: Any) -> fx.Node:
    kind = type(result)
    if isinstance(result, Mapping):
        fields = dict(result)
    elif dataclasses.is_dataclass(result):
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    elif hasattr(result, "_asdict"):
        fields = result._asdict()
    else:
        raise TraceError(
            f"the model returns a {kind.__name__}: return tensors, tuples, dicts or data classes of them"
        )
    known = {name: value for name, value in fields.items() if _can_leave(value)}
    name = f"_output_{len(recorder.extra_modules)}"
    recorder.extra_modules[name] = BuildOutput(kind, tuple(known))
    values = tuple(output_argument(recorder, value) for value in known.values())
    return recorder.graph.call_module(name, values)


def _can_leave(value: Any) -> bool:
    """Caches and other stateful objects inside an output are dropped; tensors and values stay."""
    if isinstance(value, (tuple, list)):
        return all(_can_leave(item) for item in value)
    return isinstance(value, (Tensor, int, float, bool, str, dict, type(None)))


def _tensors(value: Any, name: str = "input") -> list[tuple[str, Tensor]]:
    """The tensors inside a structure, with a name each."""
    if isinstance(value, Tensor):
        return [(name, value)]
    if isinstance(value, Mapping):
        return [found for key, item in value.items() for found in _tensors(item, str(key))]
    if isinstance(value, (list, tuple)):
        return [found for index, item in enumerate(value) for found in _tensors(item, f"{name}[{index}]")]
    return []


def placeholder_values(model: nn.Module, example_inputs: Any) -> list[Any]:
    """The example inputs in the order of the recorded graph's placeholders."""
    values: list[Any] = []
    bound = bind_examples(model, example_inputs)
    for name, value in bound.arguments.items():
        kind = inspect.signature(model.forward).parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            values.extend(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            values.extend(value.values())
        else:
            values.append(value)
    return values
