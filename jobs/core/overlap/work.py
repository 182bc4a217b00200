"""What each operator has to do, apart from how fast a cluster does it: arithmetic, bytes moved, messages.

The same program can then be asked about another cluster or bandwidth without capturing it again.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import prod
from typing import Any

from jobs.core.overlap.clusters import Cluster
from jobs.core.overlap.collectives import group_collective_s
from jobs.core.overlap.kernels import gemm_s, memory_bound_s
from jobs.core.overlap.operations import POINTWISE, Operation, Ref, TensorFact, refs


class WorkKind(StrEnum):
    """Which cost model applies."""

    GEMM = "gemm"
    ATTENTION = "attention"
    MEMORY = "memory"
    COLLECTIVE = "collective"
    UNKNOWN = "unknown"
    NONE = "none"


@dataclass(frozen=True)
class Work:
    """One operator's work.

    Attributes:
        batch, rows, columns, inner: of (batched) matrix products.
        flops: of attention.
        moved_bytes: read and written; of a collective the size in its convention (collectives.py).
        operation, ranks: of a collective.
    """

    kind: WorkKind
    moved_bytes: float = 0
    batch: int = 1
    rows: int = 0
    columns: int = 0
    inner: int = 0
    item_bytes: int = 2
    flops: float = 0
    operation: str = ""
    ranks: tuple[int, ...] = ()

    def seconds(self, cluster: Cluster) -> float:
        """How long it takes on a cluster when nothing else runs. Unknown operators count as memory-bound."""
        if self.kind is WorkKind.NONE:
            return 0.0
        if self.kind is WorkKind.COLLECTIVE:
            return group_collective_s(cluster, self.operation, self.ranks, self.moved_bytes)
        if self.kind is WorkKind.GEMM:
            # Batched products fill the device together: their rows stand below each other.
            return gemm_s(cluster, self.rows * self.batch, self.columns, self.inner, self.item_bytes)
        streamed = memory_bound_s(cluster, self.moved_bytes)
        if self.kind is WorkKind.ATTENTION:
            arithmetic = self.flops / (cluster.flops_per_s * cluster.attention_efficiency)
            return max(cluster.launch_s + arithmetic, streamed)
        return streamed

    def latency_s(self, cluster: Cluster) -> float:
        """The part that merged collectives pay only once."""
        return 0.0 if self.kind is not WorkKind.COLLECTIVE else replace(self, moved_bytes=0).seconds(cluster)

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the defaults."""
        plain = asdict(Work(WorkKind.NONE))
        return {key: value for key, value in asdict(self).items() if value != plain[key]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Work":
        """The inverse of `to_json`."""
        values = {**document, "ranks": tuple(document.get("ranks", ()))}
        return cls(**{**values, "kind": WorkKind(document.get("kind", "none"))})


_PRODUCTS = {"aten.mm.default": 0, "aten.bmm.default": 0, "aten.addmm.default": 1, "aten.baddbmm.default": 1}
_FORWARD_ATTENTION = ("aten._scaled_dot_product_flash_attention_for_cpu.default",)
_BACKWARD_ATTENTION = ("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",)
_BACKWARD_FACTOR = 2.5
_KNOWN_MEMORY_BOUND = frozenset(
    f"aten.{name}"
    for name in (
        "sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "amax.default", "amin.default",
        "cat.default", "stack.default", "clone.default", "contiguous.default", "reshape.default",
        "view.default", "_to_copy.default", "native_layer_norm.default",
        "native_layer_norm_backward.default", "_fused_rms_norm.default",
        "_fused_rms_norm_backward.default", "native_group_norm.default",
        "native_group_norm_backward.default", "native_batch_norm.default",
        "_native_batch_norm_legit_functional.default", "_native_batch_norm_legit_no_training.default",
        "native_batch_norm_backward.default", "embedding.default", "embedding_dense_backward.default",
        "_softmax.default", "_log_softmax.default", "nll_loss_forward.default",
        "_softmax_backward_data.default", "_log_softmax_backward_data.default",
        "nll_loss_backward.default", "gather.default", "scatter.src", "scatter.value",
        "scatter_add.default", "index_select.default", "full.default", "constant_pad_nd.default",
        "slice_backward.default", "select_backward.default", "native_dropout.default", "bernoulli.p",
        "zeros.default", "arange.default", "arange.start", "arange.start_step", "index.Tensor",
        "empty_like.default", "new_zeros.default", "cumsum.default", "topk.default", "sort.default",
        "copy_.default", "index_add.default", "ones_like.default", "zeros_like.default",
        "full_like.default", "empty.memory_format", "index_put.default", "max.default", "min.default",
        "max.dim", "min.dim", "argmax.default", "var_mean.correction",
    )
)  # fmt: skip


def work_of(operation: Operation, facts: Mapping[str, TensorFact | None]) -> Work:
    """The work of an operator that computes, from its shapes; total: what is not known has a stated default.

    Args:
        facts: of every value, tuples as None.
    """
    moved = sum(fact.size_bytes for fact in operation.results if fact is not None and fact.shape is not None)
    sources = [facts.get(name) for name in operation.inputs]
    moved += sum(fact.size_bytes for fact in sources if fact is not None and fact.shape is not None)
    if operation.target in _PRODUCTS:
        return _product(operation, facts, moved)
    if operation.target == "aten.linear.default":
        return _linear(operation, facts, moved)
    if operation.target in (*_FORWARD_ATTENTION, *_BACKWARD_ATTENTION):
        return _attention(operation, facts, moved)
    if operation.target.startswith(("aten.convolution.", "aten.convolution_backward.")):
        return _convolution(operation, facts, moved)
    known = POINTWISE in operation.traits or operation.target in _KNOWN_MEMORY_BOUND
    return Work(WorkKind.MEMORY if known else WorkKind.UNKNOWN, moved)


def _product(operation: Operation, facts: Mapping[str, TensorFact | None], moved: float) -> Work:
    first = _PRODUCTS[operation.target]
    left, right = (_shape(facts, operation.args[first + i]) for i in (0, 1))
    if not left or not right:
        return Work(WorkKind.UNKNOWN, moved)
    return Work(
        WorkKind.GEMM,
        moved,
        prod(left[:-2]),
        left[-2],
        right[-1],
        left[-1],
        _item_bytes(operation),
    )


def _linear(operation: Operation, facts: Mapping[str, TensorFact | None], moved: float) -> Work:
    left, weight = _shape(facts, operation.args[0]), _shape(facts, operation.args[1])
    if not left or not weight:
        return Work(WorkKind.UNKNOWN, moved)
    return Work(WorkKind.GEMM, moved, 1, prod(left[:-1]), weight[0], left[-1], _item_bytes(operation))


def _attention(operation: Operation, facts: Mapping[str, TensorFact | None], moved: float) -> Work:
    backward = operation.target in _BACKWARD_ATTENTION
    query, key = _shape(facts, operation.args[int(backward)]), _shape(facts, operation.args[1 + backward])
    if len(query) != 4 or len(key) != 4:
        return Work(WorkKind.UNKNOWN, moved)
    causal = bool(operation.args[7 if backward else 4 : 8 if backward else 5] == (True,))
    flops = 4.0 * prod(query) * key[2] * (0.5 if causal else 1.0) * (_BACKWARD_FACTOR if backward else 1.0)
    return Work(WorkKind.ATTENTION, moved, flops=flops)


def _convolution(operation: Operation, facts: Mapping[str, TensorFact | None], moved: float) -> Work:
    backward = "backward" in operation.target
    weight = _shape(facts, operation.args[2 if backward else 1])
    made = (
        _shape(facts, operation.args[0])
        if backward
        else tuple((operation.results[0] or _NOTHING).shape or ())
    )
    if not weight or not made:
        return Work(WorkKind.UNKNOWN, moved)
    rows = made[0] * prod(made[2:]) * (2 if backward else 1)
    return Work(WorkKind.GEMM, moved, 1, rows, weight[0], prod(weight[1:]), _item_bytes(operation))


_NOTHING = TensorFact(None, 4)


def _shape(facts: Mapping[str, TensorFact | None], value: Any) -> tuple[int, ...]:
    fact = facts.get(value.name) if isinstance(value, Ref) else None
    return () if fact is None or fact.shape is None else fact.shape


def _item_bytes(operation: Operation) -> int:
    fact = operation.results[0]
    return 2 if fact is None else fact.item_bytes


_CONVENTION = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
}


def collective_work(
    operation: Operation, facts: Mapping[str, TensorFact | None], ranks: tuple[int, ...]
) -> Work:
    """The work of a collective; an all-to-all with a single peer is one message."""
    name = operation.target.split(".")[1].removesuffix("_coalesced")
    taken = [facts.get(ref.name) for ref in refs(operation.args)]
    size_in = sum(fact.size_bytes for fact in taken if fact is not None and fact.shape is not None)
    size_out = sum(
        fact.size_bytes for fact in operation.results if fact is not None and fact.shape is not None
    )
    size = size_in if name.startswith("reduce_scatter") else size_out
    kind = _CONVENTION.get(name, name)
    if kind == "all_to_all":
        sent = operation.args[2]
        if len(sent) > 1 and list(sent).count(0) == len(sent) - 1:
            kind = "point_to_point"
    return Work(WorkKind.COLLECTIVE, size, operation=kind, ranks=ranks)
