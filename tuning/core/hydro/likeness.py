"""Whether several models are one shape: what has to be equal before their trials can share a graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.rules import parametrization_of
from tuning.core.hydro.tracing import trace

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def check_alike(models: Sequence[nn.Module], example_inputs: Any) -> None:
    """Raise ``FuseError`` naming the first layer or tensor in which the models differ."""
    first = models[0]
    _check_fusible(first)
    for index, model in enumerate(models[1:], start=1):
        _check_modules(first, model, index)
        _check_tensors(first, model, index)
        _check_attributes(first, model, index, example_inputs)
        if parametrization_of(first) != parametrization_of(model):
            raise FuseError(
                f"models[{index}] was shrunk by other width rules than models[0]: shrink all models alike"
            )


def tie_names(model: nn.Module) -> dict[str, str]:
    """Every further name of a tied parameter or shared buffer, to the name that holds it."""
    owners: dict[int, str] = {}
    aliases: dict[str, str] = {}
    named = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    for name, tensor in named:
        owner = owners.setdefault(id(tensor), name)
        if owner != name:
            aliases[name] = owner
    return aliases


def _check_fusible(model: nn.Module) -> None:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    if not any(True for _ in model.parameters()):
        raise FuseError(f"{type(model).__name__} has no parameters: there is nothing to train")
    devices = {str(tensor.device) for _, tensor in tensors}
    if len(devices) > 1:
        raise FuseError(f"models[0] is spread over {', '.join(sorted(devices))}: move it to one device")
    if "meta" in devices:
        raise FuseError("models[0] is on the meta device: give its parameters values before fusing")
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            raise FuseError(
                f"parameter {name} is {parameter.dtype}: trials train in float32, use model.float()"
            )
    for path, module in model.named_modules():
        if any(getattr(module, hooks, None) for hooks in _HOOKS):
            raise FuseError(f"layer '{path}' ({type(module).__name__}) has hooks: remove them before fusing")


def _check_modules(first: nn.Module, model: nn.Module, index: int) -> None:
    ours = {path: _class_of(module) for path, module in first.named_modules()}
    theirs = {path: _class_of(module) for path, module in model.named_modules()}
    for path in [*ours, *(path for path in theirs if path not in ours)]:
        if ours.get(path) is not theirs.get(path):
            raise FuseError(
                f"models[{index}] differs from models[0] at layer '{path}' ({_name(ours.get(path))} and "
                f"{_name(theirs.get(path))}): group trials by model structure"
            )


def _class_of(module: nn.Module) -> type[nn.Module]:
    """The class as the user wrote it: a parametrized module has a class of its own, derived from that."""
    kind = type(module)
    return kind.__bases__[0] if nn.utils.parametrize.is_parametrized(module) else kind


def _name(kind: type | None) -> str:
    return "missing" if kind is None else kind.__name__


def _check_tensors(first: nn.Module, model: nn.Module, index: int) -> None:
    if tie_names(first) != tie_names(model):
        raise FuseError(f"models[{index}] ties other parameters than models[0]: tie all models alike")
    ours = {**dict(first.named_parameters()), **dict(first.named_buffers())}
    theirs = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if ours.keys() != theirs.keys():
        names = sorted(ours.keys() ^ theirs.keys())
        raise FuseError(f"models[{index}] and models[0] differ in the tensor {names[0]}: use one model class")
    for name, tensor in ours.items():
        other = theirs[name]
        for what in ("shape", "dtype", "device", "requires_grad"):
            mine, its = getattr(tensor, what), getattr(other, what)
            if mine != its:
                shown = (list(mine), list(its)) if what == "shape" else (mine, its)
                raise FuseError(
                    f"{name} has {what} {shown[0]} in models[0] and {shown[1]} in models[{index}]: only "
                    "models of one shape can be fused"
                )


def _check_attributes(first: nn.Module, model: nn.Module, index: int, example_inputs: Any) -> None:
    others = dict(model.named_modules())
    suspects = []
    for path, module in first.named_modules():
        twin = vars(others[path])
        for name, value in vars(module).items():
            if name == "training" or not _is_setting(value) or _equal(value, twin.get(name)):
                continue
            setting = f"{path}.{name}" if path else name
            if isinstance(value, Tensor) or type(module).__module__.startswith("torch.nn."):
                raise FuseError(
                    f"{setting} differs between models[0] and models[{index}]: trials of one container share "
                    "all settings of a layer, so group trials by it"
                )
            suspects.append(setting)
    if suspects and _recorded(first, example_inputs) != _recorded(model, example_inputs):
        raise FuseError(
            f"models[{index}] computes something else than models[0] ({', '.join(suspects)} differ): group "
            "trials by these settings"
        )


def _is_setting(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_setting(item) for item in value)
    if isinstance(value, nn.Parameter):
        return False
    return value is None or isinstance(value, bool | int | float | str | Tensor | torch.dtype)


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor):
        return isinstance(other, Tensor) and value.shape == other.shape and torch.equal(value, other)
    if isinstance(value, tuple | list):
        same = isinstance(other, type(value)) and len(value) == len(other)
        return same and all(_equal(mine, its) for mine, its in zip(value, other, strict=True))
    return bool(value == other) or (value != value and other != other)


def _recorded(model: nn.Module, example_inputs: Any) -> list[str]:
    traced = trace(model, example_inputs)
    layers = [f"{path}: {module!r}" for path, module in traced.named_modules() if path]
    return [str(traced.graph), *layers]
