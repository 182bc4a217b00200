"""Building the surrogate: the same layers with smaller tensors, and the graph with the new sizes."""

from typing import Any

import torch
from torch import Tensor, nn

from tuning.core.hydro.tracing import TracedModule, drop_unused
from tuning.core.hydro.tracing.leaves import is_leaf
from tuning.core.hydro.widths import Analysis, Sizes
from tuning.core.hydro.widths.factories import spread_picks


def narrow_tensors(a: Analysis, sizes: Sizes) -> dict[int, Tensor]:
    """A new tensor for every parameter and buffer, by the identity of the old one.

    Buffers and frozen parameters keep their values, at evenly spread positions where they get shorter;
    trainable parameters of a new shape are empty until they are initialised.
    """
    parameters = dict(a.traced.named_parameters())
    new: dict[int, Tensor] = {}
    for name, tensor in a.tensors.items():
        shape = [sizes.new(dim) for dim in a.dims_of(name)]
        if name not in parameters:
            new[id(tensor)] = _picked(tensor, shape)
        elif not tensor.requires_grad:
            new[id(tensor)] = nn.Parameter(_picked(tensor, shape), requires_grad=False)
        else:
            same = list(tensor.shape) == shape
            value = tensor.detach().clone() if same else tensor.new_empty(shape)
            new[id(tensor)] = nn.Parameter(value)
    return new


def narrow_hierarchy(a: Analysis, sizes: Sizes, tensors: dict[int, Tensor]) -> nn.Module:
    """The module tree of the surrogate: leaves are copies of the user's layers, the rest only holds names."""
    done: dict[int, nn.Module] = {}

    def copied(module: nn.Module, prefix: str) -> nn.Module:
        if id(module) in done:
            return done[id(module)]
        twin = _twin(module, keep_class=is_leaf(module) and module is not a.traced)
        done[id(module)] = twin
        twin._parameters = {key: _looked_up(tensors, value) for key, value in module._parameters.items()}
        twin._buffers = {key: _looked_up(tensors, value) for key, value in module._buffers.items()}
        twin._modules = {
            key: None if child is None else copied(child, f"{prefix}{key}.")
            for key, child in module._modules.items()
        }
        for key, value in a.resizes.get(prefix[:-1], {}).items():
            setattr(twin, key, _resolved(value, sizes))
        if isinstance(twin, nn.RNNBase):
            twin._init_flat_weights()
        if isinstance(twin, nn.modules.batchnorm._NormBase):
            twin.reset_running_stats()
        return twin

    return copied(a.traced, "")


def rewrite_graph(a: Analysis, sizes: Sizes) -> None:
    """Write the new sizes into every call that spells a size out."""
    for rewrite in a.rewrites:
        rewrite(sizes)
    drop_unused(a.traced.graph)


def assemble(a: Analysis, root: nn.Module) -> TracedModule:
    """The surrogate from its layers and the rewritten graph."""
    for name, buffer in a.traced.named_buffers(recurse=False):
        if name not in root._buffers:
            root.register_buffer(name, buffer, persistent=False)
    return TracedModule(root, a.traced.graph, a.traced._class_name())


def _twin(module: nn.Module, *, keep_class: bool) -> nn.Module:
    if not keep_class:
        twin = nn.Module()
        twin.training = module.training
        twin._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
        return twin
    twin = module.__class__.__new__(module.__class__)
    twin.__dict__ = dict(module.__dict__)
    return twin


def _looked_up(tensors: dict[int, Tensor], value: Tensor | None) -> Any:
    return None if value is None else tensors[id(value)]


def _resolved(value: Any, sizes: Sizes) -> Any:
    if callable(value):
        return value(sizes)
    if isinstance(value, list):
        return tuple(sizes.new(dim) for dim in value)
    return sizes.new(value)


def _picked(tensor: Tensor, shape: list[int]) -> Tensor:
    picked = tensor.detach().clone()
    for axis, size in enumerate(shape):
        if picked.shape[axis] != size:
            picks = torch.tensor(spread_picks(picked.shape[axis], size), device=picked.device)
            picked = picked.index_select(axis, picks)
    return picked
