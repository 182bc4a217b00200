"""Proof by running: the fused module against its own trials, extracted and run one by one."""

import copy
import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.fused_module import FusedModule, as_call, clone, extract, in_double, write_trial
from tuning.core.hydro.layers import DropPath
from tuning.core.hydro.nested import tensors_in

_RELATIVE = 2e-3
_ABSOLUTE = 2e-4
_BEND = 0.2  # how far, next to the largest entry, one jump may carry a gradient
# Weights are shaken by this much to see what rounding may do to a result, and that is allowed ten times over.
_SHAKE = 1e-6
_MARGIN = 10.0
# A gradient that is zero in exact arithmetic (a bias before a norm) is rounding, next to the steepest one.
_CANCELLED = 1e-4
_GRADIENT = "gradient of "

Observed = dict[str, Tensor]


def verify(fused: FusedModule) -> None:
    """Raise ``FuseError`` unless outputs, statistics and gradients are those of the plain models.

    Outputs in evaluation mode are compared for every trial; a training step for the first and the last one
    (not off the CPU where there is dropout, whose kernels draw differently there).
    Differences pass that rounding explains: next to the largest entry, in a model as sensitive as it is, or
    because they are gone in double precision (rounding may carry a value over a bend, as of a ReLU, where the
    gradient jumps).
    """
    try:
        _compare_all(fused)
    except FuseError:
        if not _only_rounds(fused):
            raise


def _only_rounds(fused: FusedModule) -> bool:
    """Whether nothing differs much, and nothing at all in double precision."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _compare_all(fused, _BEND)
            _compare_all(in_double(fused))
        except Exception:  # of whatever a model raises that cannot run so
            return False
    return True


def _compare_all(fused: FusedModule, absolute: float = _ABSOLUTE) -> None:
    """Compare outputs of every trial, and a training step of the first and the last one."""
    twin = clone(fused, range(fused.trials)).eval()
    model = extract(twin, 0)
    with torch.no_grad():
        outputs = _outputs(twin, fused)
        for index in range(fused.trials):
            write_trial(twin, index, model)
            run = functools.partial(_outputs, fused=fused)
            _compare(_of_trial(outputs, index), run, model, model, absolute)
    if fused.streams.device.type != "cpu" and fused.train().draws:
        # Elsewhere PyTorch's own dropout kernels draw in another way than a generator per trial can.
        return
    ends = sorted({0, fused.trials - 1})
    twin = clone(fused, ends).train()
    models = [_reference(twin, position).train() for position in range(len(ends))]
    step = _training_step(twin, fused, list(twin.named_buffers()))
    for position, model in enumerate(models):
        run = functools.partial(_alone, fused=fused, seed=twin.seeds[position])
        _compare(_of_trial(step, position), run, model, copy.deepcopy(model), absolute)


def _reference(fused: FusedModule, position: int) -> nn.Module:
    """One trial as a plain module.

    Stochastic depth is written in many ways that draw differently; where a model has it, the recorded form of
    the model, in which it is one layer, stands for the user's.
    """
    traced = fused.blueprint.traced
    if any(isinstance(module, DropPath) for module in traced.modules()):
        return write_trial(fused, position, copy.deepcopy(traced))
    return extract(fused, position)


def _run(model: nn.Module, fused: FusedModule) -> list[Tensor]:
    args, kwargs = as_call(fused.blueprint.example_inputs)
    return tensors_in(model(*args, **kwargs))


def _outputs(model: nn.Module, fused: FusedModule) -> Observed:
    return {f"output {number}": tensor for number, tensor in enumerate(_run(model, fused))}


def _training_step(model: nn.Module, fused: FusedModule, buffers: list[tuple[str, Tensor]]) -> Observed:
    """Outputs, gradients of a sum in which every output counts differently, and buffers after it."""
    outputs = _run(model, fused)
    pulled = [(tensor * torch.cos(tensor.detach())).sum() for tensor in outputs if tensor.requires_grad]
    if pulled:
        torch.stack(pulled).sum().backward()
    seen = {f"training output {number}": tensor.detach() for number, tensor in enumerate(outputs)}
    for name, parameter in model.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        seen[f"{_GRADIENT}{name}"] = grad
    shared = fused.blueprint.shared_names
    return seen | {f"buffer {name}": tensor for name, tensor in buffers if name not in shared}


def _alone(model: nn.Module, fused: FusedModule, seed: int) -> Observed:
    """A training step of the plain model with the random stream of its trial."""
    device = fused.streams.device
    held = dict(fused.named_buffers())
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return _training_step(model, fused, [(n, b) for n, b in model.named_buffers() if n in held])


def _of_trial(seen: Observed, index: int) -> Observed:
    return {name: tensor[index] for name, tensor in seen.items()}


def _compare(
    found: Observed,
    run: Callable[[nn.Module], Observed],
    model: nn.Module,
    spare: nn.Module,
    absolute: float,
) -> None:
    """Compare what a trial did with what ``run`` gives for the plain model; ``spare`` is as it was before."""
    expected = {name: tensor.detach().clone() for name, tensor in run(model).items()}
    if found.keys() != expected.keys():
        odd = sorted(found.keys() ^ expected.keys())[0]
        raise FuseError(f"fusing changed the model ({odd} is missing or new): train it without fusion")
    suspects = [name for name, tensor in expected.items() if not _close(found[name], tensor, absolute)]
    if not suspects:
        return
    sensitive = run(_shaken(spare))
    for name in suspects:
        rounding = _MARGIN * _largest_difference(sensitive[name], expected[name])
        allowed = max(rounding, _CANCELLED * _steepest(expected) if name.startswith(_GRADIENT) else 0.0)
        if not _largest_difference(found[name], expected[name]) <= allowed:
            raise FuseError(
                f"fusing changed the model ({name} differs from the model alone): some value of it differs "
                "between trials, or is overwritten in a way the graph does not show; train it without fusion"
            )


def _steepest(seen: Observed) -> float:
    return max((float(t.abs().max()) for name, t in seen.items() if name.startswith(_GRADIENT)), default=0.0)


def _close(found: Tensor, expected: Tensor, absolute: float) -> bool:
    if found.shape != expected.shape:
        return False
    if not expected.is_floating_point():
        return torch.equal(found, expected)
    largest = float(expected.abs().max()) if expected.numel() and bool(expected.isfinite().all()) else 1.0
    close = absolute * max(largest, 1e-3)
    return torch.allclose(found, expected, rtol=_RELATIVE, atol=close, equal_nan=True)


def _shaken(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.rand(parameter.shape, generator=generator).to(parameter.device) * 2.0 - 1.0
            parameter.mul_(1.0 + _SHAKE * noise)
    return model


def _largest_difference(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return float("nan")
    return float((one.detach().double() - other.detach().double()).abs().max()) if one.numel() else 0.0
