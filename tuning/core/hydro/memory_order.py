"""In which order the plain model's dropout layers find their input in memory.

PyTorch draws a mask in the memory order of the tensor it masks. A trial's masks are those of the plain model,
so the order has to be known where the plain model hands dropout a transposed tensor.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

Order = tuple[int, ...]

_BY_ELEMENT = (nn.Dropout, nn.AlphaDropout)


def dropout_orders(traced: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Order]:
    """For each dropout node, its input's dimensions from the slowest to the fastest in memory."""
    if not drops_by_element(traced):
        return {}
    buffers = [(buffer, buffer.detach().clone()) for buffer in traced.buffers()]
    recorder = _Recorder(traced)
    with torch.no_grad(), torch.random.fork_rng(devices=_devices(traced)):
        recorder.run(*inputs)
        for buffer, value in buffers:
            buffer.copy_(value)
    return recorder.orders


def drops_by_element(traced: fx.GraphModule) -> bool:
    """Whether a model has dropout whose masks depend on the order of its input in memory."""
    return any(_drops(traced, node) for node in traced.graph.nodes)


def _devices(module: nn.Module) -> list[torch.device]:
    return [device for device in {p.device for p in module.parameters()} if device.type == "cuda"]


def _drops(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(traced.get_submodule(str(node.target)), _BY_ELEMENT)
    return node.op == "call_function" and "dropout" in str(getattr(node.target, "__name__", ""))


class _Recorder(fx.Interpreter):
    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.traced = traced
        self.orders: dict[fx.Node, Order] = {}

    def run_node(self, n: fx.Node) -> Any:
        if _drops(self.traced, n) and n.args and isinstance(n.args[0], fx.Node):
            value = self.env[n.args[0]]
            if isinstance(value, Tensor):
                self.orders[n] = order_of(value)
        return super().run_node(n)


def order_of(tensor: Tensor) -> Order:
    """Dimensions from the slowest to the fastest in memory, as ``empty_like`` lays them out."""
    like = torch.empty_like(tensor)
    strides = like.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim)))
