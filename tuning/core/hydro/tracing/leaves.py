"""Which modules are one node of the graph, and how they run while the graph is recorded."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import fx, nn

_TRACED_THROUGH = ("torch.nn.modules.container", "torch.nn.modules.transformer")
_STOCHASTIC_DEPTH = ("DropPath", "StochasticDepth")


def is_leaf(module: nn.Module) -> bool:
    """Whether a call of ``module`` is recorded as one node.

    True for PyTorch's own layers, also under a subclass that keeps their ``forward``, for classes that set
    ``traced_as_leaf``, and for stochastic depth, whose training and evaluation forms differ.
    """
    if isinstance(module, fx.GraphModule):
        return False
    if getattr(module, "traced_as_leaf", False) or is_stochastic_depth(module):
        return True
    home = getattr(type(module).forward, "__module__", "") or ""
    return home.startswith("torch.nn.modules.") and not home.startswith(_TRACED_THROUGH)


def is_stochastic_depth(module: nn.Module) -> bool:
    """Whether this is one of the many copies of ``DropPath``: no weights, a probability, a telling name."""
    return type(module).__name__.endswith(_STOCHASTIC_DEPTH) and is_small_function(module)


def is_small_function(module: nn.Module) -> bool:
    """Whether the module holds neither tensors nor other modules."""
    return not (any(True for _ in module.children()) or module._parameters or module._buffers)


@contextmanager
def quiet(module: nn.Module) -> Iterator[None]:
    """Run a layer in evaluation mode: no statistics move, no mask is drawn, a batch of one is fine."""
    flags = [(part, part.training) for part in module.modules()]
    for part, _ in flags:
        part.training = False
    try:
        yield
    finally:
        for part, flag in flags:
            part.training = flag
