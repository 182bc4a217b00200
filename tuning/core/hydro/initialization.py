"""Initial values of a surrogate: each layer's PyTorch default at target width, corrected for the new one."""

from math import sqrt

import torch
from torch import Tensor, nn

from tuning.core.hydro.roles import Part, shares_width
from tuning.core.hydro.rules import Scheme
from tuning.core.hydro.widths import Analysis, Sizes, size_of


@torch.no_grad()
def initialise(
    a: Analysis, parts: dict[str, Part], sizes: Sizes, surrogate: nn.Module, scheme: Scheme
) -> None:
    """Fill the trainable parameters of ``surrogate`` in place, from PyTorch's global random state."""
    new = dict(surrogate.named_parameters())
    for name, part in parts.items():
        if new[name].requires_grad:
            _fill(new[name], a.tensors[name], _plan(a, parts, part, sizes, scheme))
            _clear_padding(a, part, new[name])
    if scheme == "standard":
        _reset_to_defaults(a, surrogate)


def _plan(a: Analysis, parts: dict[str, Part], part: Part, sizes: Sizes, scheme: Scheme) -> tuple[str, float]:
    """How to draw one tensor: the kind of distribution and its scale."""
    use = part.use
    if use is None:
        return "measured", 0.0
    if part.role == "output" and part.last:
        return "zeros", 0.0
    if part.role == "embedding":
        tied = next(
            (p for p in parts.values() if p.role == "tied" and shares_width(p.write, part.write)), None
        )
        # A table that is added to a tied one takes its scale; at unit scale it would drown the tokens.
        return ("normal", use.bound) if tied is None else ("uniform", _tied_bound(tied))
    if part.role == "tied":
        return "uniform", _tied_bound(part)
    return use.default, use.bound * sqrt(_variance_factor(part, sizes, scheme))


def _tied_bound(part: Part) -> float:
    return 1.0 / sqrt(size_of(part.read))


def _variance_factor(part: Part, sizes: Sizes, scheme: Scheme) -> float:
    if part.role == "hidden":
        return sizes.ratio(part.read)
    if part.role == "input" and scheme == "hydro":
        return sizes.ratio(part.write)
    return 1.0


def _fill(tensor: Tensor, old: Tensor, plan: tuple[str, float]) -> None:
    kind, scale = plan
    if kind == "uniform":
        tensor.uniform_(-scale, scale)
    elif kind == "normal":
        tensor.normal_(0.0, scale)
    elif kind == "measured":
        _fill_like(tensor, old)
    else:
        tensor.fill_({"zeros": 0.0, "ones": 1.0, "quarter": 0.25}[kind])


def _fill_like(tensor: Tensor, old: Tensor) -> None:
    """A parameter of the user's own has no PyTorch default: keep its values, or their mean and deviation."""
    if tensor.shape == old.shape:
        tensor.copy_(old)
        return
    spread = float(old.double().std()) if old.numel() > 1 else 0.0
    tensor.normal_(float(old.double().mean()), spread) if spread > 0 else tensor.fill_(
        float(old.flatten()[0])
    )


def _clear_padding(a: Analysis, part: Part, tensor: Tensor) -> None:
    for use in a.uses:
        if use.kind != "lookup" or part.use is None or use.parameter != part.use.parameter:
            continue
        layer = a.layers.get(str(use.node.target)) if use.node.op == "call_module" else None
        padding = layer.padding_idx if isinstance(layer, nn.Embedding) else use.node.kwargs.get("padding_idx")
        if isinstance(padding, int):
            tensor[padding] = 0.0


def _reset_to_defaults(a: Analysis, surrogate: nn.Module) -> None:
    """Without a parametrization every layer starts as PyTorch would build it at the narrow width."""
    for name, layer in surrogate.named_modules():
        reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
        frozen = any(not parameter.requires_grad for parameter in layer.parameters(recurse=False))
        if name and callable(reset) and not frozen:
            reset()


def replaced_initialisation(a: Analysis, parts: dict[str, Part]) -> list[str]:
    """The parameters whose values at target width are not PyTorch's defaults, and so were the user's own."""
    return [name for name, part in parts.items() if part.use is not None and not _is_default(a, name, part)]


def _is_default(a: Analysis, name: str, part: Part) -> bool:
    values, use = a.tensors[name].detach(), part.use
    if (
        use is None
        or use.default == "measured"
        or not values.requires_grad
        and not a.tensors[name].requires_grad
    ):
        return True
    largest = float(values.abs().max()) if values.numel() else 0.0
    if use.default == "uniform":
        return _looks_uniform(values, largest, use.bound)
    if use.default == "normal":
        lookup = values[values.abs().sum(dim=-1) > 0] if values.dim() > 1 else values
        return lookup.numel() < 64 or abs(float(lookup.std()) - 1.0) < 0.2
    if use.kind == "bias":
        return largest == 0.0 or _bias_is_default(a, name, largest)
    return bool((values == {"ones": 1.0, "quarter": 0.25, "zeros": 0.0}[use.default]).all())


def _looks_uniform(values: Tensor, largest: float, bound: float) -> bool:
    if largest > bound * 1.001:
        return False
    spread = sqrt(float(values.double().square().mean())) * sqrt(3.0)
    return values.numel() < 64 or 0.8 < spread / bound < 1.2


def _bias_is_default(a: Analysis, name: str, largest: float) -> bool:
    """PyTorch draws the bias of Linear, Conv and recurrent layers within the bound of their weights."""
    layer = name.rsplit(".", 1)[0]
    bounds = [use.bound for use in a.uses if use.parameter.rsplit(".", 1)[0] == layer and use.bound]
    return bool(bounds) and largest <= max(bounds) * 1.001
