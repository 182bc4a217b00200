"""``hydro.fuse``: independent models of one shape become one module, and are checked to compute the same."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuning.core.hydro.errors import FuseError, HydroError
from tuning.core.hydro.fused_module import Blueprint, FusedModule
from tuning.core.hydro.likeness import check_alike
from tuning.core.hydro.random_streams import RandomStreams, seeds_for
from tuning.core.hydro.verification import verify


def fuse(models: Sequence[nn.Module], example_inputs: Any, seeds: Sequence[int] | None = None) -> FusedModule:
    """Copy independent models of one shape into one module that runs all of them.

    ``example_inputs`` is one batch (N, ...) as the model receives it: a tensor, a tuple of positional inputs
    or a dictionary of keyword inputs. The fused module takes such batches, of any size, and returns
    every output as ``(F, N, ...)``. ``seeds`` has one integer per model: a trial's dropout masks are those
    that the plain model would draw after ``torch.manual_seed(seed)``, in any company.

    The fused module is compared with the models on the example, in evaluation and in training mode and with
    gradients, before it is returned. Raises ``FuseError`` naming the layer, tensor or value at fault.
    """
    listed = _checked(models)
    chosen = seeds_for(seeds, len(listed))
    try:
        check_alike(listed, example_inputs)
        tensors, shared = _stacked(listed)
        streams = RandomStreams(chosen, next(iter(tensors.values())).device)
        blueprint = Blueprint(copy.deepcopy(listed[0]), example_inputs, shared)
        fused = FusedModule(blueprint, tensors, streams)
        verify(fused)
    except FuseError:
        raise
    except HydroError as error:
        raise FuseError(str(error)) from error
    return fused.train(listed[0].training)


def _checked(models: Sequence[nn.Module]) -> list[nn.Module]:
    if isinstance(models, nn.Module) or not isinstance(models, Sequence):
        raise FuseError(f"models is a {type(models).__name__}: give a list of models")
    if not models:
        raise FuseError("models is empty: give at least one model")
    for index, model in enumerate(models):
        if not isinstance(model, nn.Module):
            raise FuseError(f"models[{index}] is a {type(model).__name__}: give a torch.nn.Module")
        if isinstance(model, FusedModule):
            raise FuseError(f"models[{index}] is a fused module already: use hydro.merge")
    return list(models)


def _stacked(models: list[nn.Module]) -> tuple[dict[str, Tensor], frozenset[str]]:
    """Every tensor of the models as ``(F, ...)``, and the names of buffers that are held once for all.

    A buffer is shared where no layer of PyTorch owns it (those write to theirs) and all models agree: masks
    and position tables stay one tensor.
    """
    held = [{**dict(model.named_parameters()), **dict(model.named_buffers())} for model in models]
    buffers = [name for name, _ in models[0].named_buffers() if not _is_statistic(models[0], name)]
    shared = frozenset(
        name for name in buffers if all(torch.equal(held[0][name], other[name]) for other in held[1:])
    )
    tensors = {
        name: tensor.detach().clone() if name in shared else torch.stack([h[name].detach() for h in held])
        for name, tensor in held[0].items()
    }
    return tensors, shared


def _is_statistic(model: nn.Module, name: str) -> bool:
    owner = model.get_submodule(name.rpartition(".")[0])
    return type(owner).forward.__module__.startswith("torch.nn.")
