"""From Python to a graph of ATen operators with collectives and waits: four front ends, one result.

`capture_program` traces a whole step, gradients included, with `make_fx`; `capture_export` takes a graph of
`torch.export`; `capture_joint` traces a module with AOT Autograd; backend.py has that of `torch.compile`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.utils._pytree as pytree
from torch._functorch._aot_autograd.functional_utils import from_fun, has_data_mutation, to_fun
from torch._functorch.aot_autograd import aot_export_module
from torch._subclasses import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.operations import CapturedProgram
from jobs.core.overlap.program import Program
from workers.trainer.overlap.conversion import is_ordered, program_of
from workers.trainer.overlap.worlds import ranks_of_group, simulated_world

_FILLED = {
    torch.ops.aten.ones_like.default: 1,
    torch.ops.aten.zeros_like.default: 0,
    torch.ops.aten.new_ones.default: 1,
    torch.ops.aten.new_zeros.default: 0,
}


@dataclass(frozen=True)
class Captured:
    """One rank's graph.

    Attributes:
        inputs: names of parameters and inputs in the order of the graph's placeholders.
        batch_dims: the batch dimension of each placeholder that has one.
        groups: name to ranks, for every group that the graph uses.
    """

    module: GraphModule
    program: CapturedProgram
    inputs: tuple[str, ...]
    batch_dims: Mapping[str, int]
    groups: Mapping[str, tuple[int, ...]]
    rank: int = 0

    def ranks_of(self, group: str) -> tuple[int, ...]:
        return self.groups[group]


def capture_program(program: Program, rank: int = 0) -> Captured:
    """Trace one rank of a program, with its gradients if it trains.

    Raises:
        ProgramRefused: with the field or the reason that the program gave by raising.
    """
    names, values = placeholders(program)
    with simulated_world(program.groups, rank):
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        fakes = [_fake(mode, value) for value in values]
        for name, fake in zip(names, fakes, strict=True):
            if program.train and name.startswith("params.") and fake.is_floating_point():
                fake.requires_grad_(True)
        function = _functional(_flat(program))
        trace = make_fx(
            function,
            tracing_mode="fake",
            decomposition_table=_decompositions(),
            _allow_non_fake_inputs=True,
        )
        try:
            with _functional_collectives():
                module = trace(*fakes)
        except ProgramRefused:
            raise
        except Exception as error:
            raise ProgramRefused(f"the program cannot be captured: {_said(error)}") from error
        for node, name in zip(_placed(module), names, strict=True):
            node._rename(re.sub(r"\W", "_", name))
        dims = _batch_dims(program, names, values, module)
        return _captured(module, names, dims, rank)


def capture_export(
    exported: torch.export.ExportedProgram, batch_dims: Sequence[int | None], rank: int = 0
) -> Captured:
    """Take the graph of `torch.export`; `batch_dims` has an entry for each of the module's own inputs."""
    lowered = exported.run_decompositions(_decompositions())
    module = lowered.graph_module
    placed = _placed(module)
    own = list(lowered.graph_signature.user_inputs)
    dims = {name: dim for name, dim in zip(own, batch_dims, strict=True) if dim is not None}
    return _captured(module, tuple(node.name for node in placed), dims, rank)


def capture_joint(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor], batch_dims: Sequence[int | None], rank: int = 0
) -> Captured:
    """Trace a module that returns its loss, forward and backward, with AOT Autograd."""
    found, signature = aot_export_module(module, list(inputs), trace_joint=True, output_loss_index=0)
    graph = cast(GraphModule, found)
    names = tuple(node.name for node in _placed(graph))
    own = list(signature.user_inputs)
    dims = {str(name): dim for name, dim in zip(own, batch_dims, strict=True) if dim is not None}
    return _captured(graph, names, dims, rank)


def _captured(module: GraphModule, names: Sequence[str], dims: Mapping[str, int], rank: int) -> Captured:
    _without_operands(module)
    module.graph.eliminate_dead_code(is_impure_node=is_ordered)
    module.recompile()
    program = program_of(module)
    groups = {
        value: ranks_of_group(value)
        for operation in program.operations
        if operation.target.startswith("_c10d_functional.") and "wait_tensor" not in operation.target
        for value in operation.args[-1:]
        if isinstance(value, str)
    }
    return Captured(module, program, tuple(names), dims, groups, rank)


def _placed(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _without_operands(module: GraphModule) -> None:
    """`ones_like` of a loss needs only its shape; as a constant the backward need not wait for the loss."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in _FILLED:
            continue
        value = node.meta["val"]
        if not all(isinstance(size, int) for size in value.shape):
            continue
        with module.graph.inserting_before(node):
            arguments = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
            full = module.graph.call_function(
                torch.ops.aten.full.default, (list(value.shape), _FILLED[node.target]), arguments
            )
        full.meta = dict(node.meta)
        node.replace_all_uses_with(full)
        module.graph.erase_node(node)


def placeholders(program: Program) -> tuple[list[str], list[Any]]:
    """Names (`params.w`, `inputs.x`) and values or shapes in the order of the captured graph's placeholders.

    Raises:
        ProgramRefused: a field is not what it has to be.
    """
    if not callable(program.step):
        raise ProgramRefused("step: a function of parameters and inputs is required")
    names, values = [], []
    for kind, given in (("params", program.params), ("inputs", program.inputs)):
        if not isinstance(given, Mapping):
            raise ProgramRefused(f"{kind}: a dictionary of tensors or shapes is required")
        for key, value in given.items():
            names.append(f"{kind}.{key}")
            values.append(value)
            _check_value(names[-1], value)
    return names, values


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        return
    sizes = isinstance(value, Sequence) and not isinstance(value, str)
    if not sizes or not all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in value
    ):
        raise ProgramRefused(f"{name}: a tensor or a shape is required")


def _fake(mode: FakeTensorMode, value: Any) -> torch.Tensor:
    with mode:
        if isinstance(value, torch.Tensor) and not isinstance(value, torch._subclasses.FakeTensor):
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else tuple(value)
        return torch.empty(shape, dtype=value.dtype if isinstance(value, torch.Tensor) else torch.float32)


@contextmanager
def _functional_collectives() -> Iterator[None]:
    """While a step is traced, `dist.all_reduce(x)` and its kin are functional, as under `torch.compile`.

    The asynchronous forms have none; PyTorch then says so.
    """
    replacements = {
        "all_reduce": functional.all_reduce_inplace,
        "all_gather_into_tensor": functional.all_gather_tensor_inplace,
        "reduce_scatter_tensor": functional.reduce_scatter_tensor_inplace,
        "all_to_all_single": functional.all_to_all_inplace,
    }
    before = {name: getattr(dist, name) for name in replacements}
    for name, replacement in replacements.items():
        setattr(dist, name, replacement)
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(dist, name, original)


def _flat(program: Program) -> Callable[..., Any]:
    """The step, or loss and gradients, as a function of one flat list of tensors."""
    keys, count = list(program.params), len(program.params)

    def flat(*tensors: torch.Tensor) -> Any:
        params = dict(zip(keys, tensors[:count], strict=True))
        inputs = dict(zip(program.inputs, tensors[count:], strict=True))
        result = program.step(params, inputs)
        if not program.train:
            return result
        if not isinstance(result, torch.Tensor) or result.numel() != 1:
            raise ProgramRefused("step: with train=True it has to return the loss, a single number")
        wanted = [param for param in tensors[:count] if param.requires_grad]
        gradients = torch.autograd.grad(result, wanted, allow_unused=True)
        return result.detach(), [gradient for gradient in gradients if gradient is not None]

    return flat


def _functional(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without operations in place; what a step does to its inputs becomes a `copy_` at the end."""

    def without_mutation(*tensors: torch.Tensor) -> Any:
        with FunctionalTensorMode():
            wrapped = [to_fun(tensor) for tensor in tensors]
            result = function(*wrapped)
            result = pytree.tree_map_only(FunctionalTensor, from_fun, result)
            changed = [
                (tensor, cast(torch.Tensor, from_fun(twin)))
                for tensor, twin in zip(tensors, wrapped, strict=True)
                if isinstance(twin, FunctionalTensor) and has_data_mutation(twin)
            ]
        with torch.no_grad():
            for tensor, value in changed:
                tensor.copy_(value)
        return result

    return without_mutation


def _batch_dims(
    program: Program, names: Sequence[str], values: Sequence[Any], module: GraphModule
) -> dict[str, int]:
    """The batch dimension by placeholder; checks that all inputs have one batch size."""
    if not isinstance(program.batch_dims, Mapping):
        raise ProgramRefused("batch_dims: a dictionary of inputs' dimensions is required")
    for key in program.batch_dims:
        if key not in program.inputs:
            raise ProgramRefused(f"batch_dims: {key} is no input")
    placed = [node.name for node in _placed(module)]
    found: dict[str, int] = {}
    batch: tuple[str, int] | None = None
    for name, value, node in zip(names, values, placed, strict=True):
        kind, key = name.split(".", 1)
        dim = program.batch_dims.get(key) if kind == "inputs" else None
        if dim is None:
            continue
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else tuple(value)
        if isinstance(dim, bool) or not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
            raise ProgramRefused(f"batch_dims: {key} has {len(shape)} dimensions, not a dimension {dim!r}")
        dim %= len(shape)
        if batch is not None and shape[dim] != batch[1]:
            raise ProgramRefused(
                f"batch_dims: {key} has a batch of {shape[dim]}, {batch[0]} one of {batch[1]};"
                " they have to agree"
            )
        batch = batch or (key, shape[dim])
        found[node] = dim
    return found


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Losses whose mean hides how many samples there are are taken apart."""
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    table = get_decompositions(
        [
            aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss, aten.smooth_l1_loss_backward,
            aten.huber_loss, aten.huber_loss_backward, aten.binary_cross_entropy,
            aten.binary_cross_entropy_backward, aten.binary_cross_entropy_with_logits, aten.embedding_bag,
        ]
    )  # fmt: skip
    table = dict(table)
    table[aten.nll_loss_forward.default] = _nll_loss_forward
    return table


def _nll_loss_forward(
    source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int, ignore_index: int
) -> Any:
    """A mean over targets as a sum over their total weight, which adds up over tiles."""
    if reduction != 1:
        return NotImplemented
    loss, total = torch.ops.aten.nll_loss_forward.default(source, target, weight, 2, ignore_index)
    return loss / total, total


def _said(error: Exception) -> str:
    """The last line that means something, without addresses."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    in_place = re.search(r"effect .* function (c10d\.\w+)", str(error))
    if in_place:
        return f"{in_place[1]} works in place or asynchronously; use functional collectives"
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]
