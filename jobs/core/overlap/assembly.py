"""From a program in tiles to the graph that is scheduled, with the work of each node beside it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.core.overlap.clusters import Cluster
from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.graph import Graph, Kind, Node
from jobs.core.overlap.operations import (
    BARRIER,
    COLLECTIVE,
    WAIT,
    CapturedProgram,
    Operation,
    TensorFact,
    refs,
)
from jobs.core.overlap.tiling import ORDERED
from jobs.core.overlap.work import Work, WorkKind, collective_work, work_of

_ALLOCATED_BYTES = 512
_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "reshape.default", "_unsafe_view.default", "expand.default", "permute.default",
        "t.default", "transpose.int", "unsqueeze.default", "squeeze.default", "squeeze.dim",
        "squeeze.dims", "slice.Tensor", "select.int", "split.Tensor", "split_with_sizes.default",
        "unbind.int", "detach.default", "alias.default",
    )
)  # fmt: skip
_HOST = ("aten._local_scalar_dense.default", "aten.item.default")
_MERGED = "_c10d_functional.all_reduce.default"


@dataclass(frozen=True)
class WorkGraph:
    """A graph whose times are still to be filled in.

    Attributes:
        nodes: in program order, without times.
        works: of each node.
        base_bytes: parameters and inputs, which live all the time and are not part of the graph's bytes.
        sizes: samples of each tile.
    """

    nodes: tuple[Node, ...]
    works: tuple[Work, ...]
    outputs: tuple[int, ...]
    base_bytes: float
    sizes: tuple[int, ...]

    def on(
        self,
        cluster: Cluster,
        *,
        budget_bytes: float | None = None,
        compute_slowdown: float = 0.0,
        comm_slowdown: float = 0.0,
    ) -> Graph:
        """The graph with the times of a cluster."""
        memo: dict[Work, tuple[float, float]] = {}
        for work in self.works:
            if work not in memo:
                memo[work] = (work.seconds(cluster), work.latency_s(cluster))
        nodes = tuple(
            replace(node, time_s=memo[work][0], latency_s=memo[work][1] if node.merge else 0.0)
            for node, work in zip(self.nodes, self.works, strict=True)
        )
        return Graph(
            nodes,
            self.outputs,
            budget_bytes,
            compute_slowdown,
            comm_slowdown,
            bucket_is_one_storage=False,
        )

    @property
    def unknown(self) -> list[str]:
        """Operators for which the cost model has only its default."""
        return [
            node.name
            for node, work in zip(self.nodes, self.works, strict=True)
            if work.kind is WorkKind.UNKNOWN
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything, for a process that knows no PyTorch."""
        names = [node.name for node in self.nodes]
        return {
            "nodes": [
                {
                    "id": node.name, "kind": node.kind.value, "inputs": list(node.inputs),
                    "bytes": node.size_bytes, "group": node.group, "tile": node.tile, "merge": node.merge,
                    "with_input": node.with_input, "work": work.to_json(),
                }
                for node, work in zip(self.nodes, self.works, strict=True)
            ],
            "outputs": [names[index] for index in self.outputs],
            "base_bytes": self.base_bytes,
            "sizes": list(self.sizes),
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "WorkGraph":
        """The inverse of `to_json`."""
        rows = document["nodes"]
        index_of = {row["id"]: index for index, row in enumerate(rows)}
        nodes = tuple(
            Node(
                row["id"],
                Kind(row["kind"]),
                0.0,
                row["bytes"],
                tuple(row["inputs"]),
                row["group"],
                row["tile"],
                row["merge"],
                # Jobs from before it was told have none.
                with_input=row.get("with_input", False),
            )
            for row in rows
        )
        works = tuple(Work.from_json(row["work"]) for row in rows)
        outputs = tuple(index_of[name] for name in document["outputs"])
        return cls(nodes, works, outputs, document["base_bytes"], tuple(document["sizes"]))


def assemble(
    program: CapturedProgram,
    sizes: tuple[int, ...],
    ranks_of: Callable[[str], Sequence[int]],
    aliases: Collection[str] | None = None,
) -> WorkGraph:
    """Turn a program into nodes.

    Args:
        ranks_of: the ranks of a group by name.
        aliases: operators whose result lies in the storage of an operand; without it the usual views.

    Raises:
        ProgramRefused: an operator takes a collective before its wait.
    """
    made = _Assembly(ranks_of, aliases, _picked(program))
    made.facts.update(program.inputs)
    for operation in program.operations:
        made.add(operation)
    outputs = tuple(
        dict.fromkeys(made.index[ref.name] for ref in refs(program.outputs) if ref.name in made.index)
    )
    made.check_outputs(outputs)
    base = sum(fact.size_bytes for fact in program.inputs.values())
    return WorkGraph(tuple(made.nodes), tuple(made.works), outputs, base, sizes)


@dataclass
class _Assembly:
    ranks_of: Callable[[str], Sequence[int]]
    aliases: Collection[str] | None
    picked: Mapping[str, set[int]]
    nodes: list[Node] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    facts: dict[str, TensorFact | None] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    split: set[str] = field(default_factory=set)

    def add(self, operation: Operation) -> None:
        self.facts[operation.name] = operation.results[0] if operation.single else None
        inputs = tuple(self.index[name] for name in operation.inputs if name in self.index)
        if COLLECTIVE in operation.traits:
            self._collective(operation, inputs)
        elif WAIT in operation.traits:
            self._put(operation, Kind.WAIT, inputs)
        elif operation.target in _HOST:
            self._put(operation, Kind.SYNC, inputs)
        elif operation.traits & ORDERED:
            self._barrier(f"before_{operation.name}")
            self._compute(operation, inputs)
            self._barrier(f"after_{operation.name}")
        elif self._is_view(operation) and inputs:
            self._put(operation, Kind.VIEW, inputs)
        elif operation.target == "getitem":
            self._put(operation, Kind.COMPUTE, inputs, _bytes(operation.results), with_input=bool(inputs))
        else:
            self._compute(operation, inputs)
        self._check(operation, inputs)

    def _is_view(self, operation: Operation) -> bool:
        if operation.target == "getitem":
            # Of a collective, or of a view with several parts; other results have storages of their own.
            source = operation.args[0].name
            return self.nodes[self.index[source]].kind is not Kind.COMPUTE or source in self.split
        if self.aliases is not None:
            return operation.name in self.aliases
        return operation.target in _VIEWS

    def _compute(self, operation: Operation, inputs: tuple[int, ...]) -> None:
        free = self._is_view(operation) or not any(fact is not None for fact in operation.results)
        if free and BARRIER not in operation.traits:
            self.split.add(operation.name)
            self._put(operation, Kind.COMPUTE, inputs)
        else:
            taken = self.picked.get(operation.name, set())
            size = _bytes([fact for i, fact in enumerate(operation.results) if i not in taken])
            size = 0 if free else size
            self._put(operation, Kind.COMPUTE, inputs, size, work_of(operation, self.facts))

    def _collective(self, operation: Operation, inputs: tuple[int, ...]) -> None:
        group = next(value for value in reversed(operation.args) if isinstance(value, str))
        work = collective_work(operation, self.facts, tuple(self.ranks_of(group)))
        merge = None
        if operation.target == _MERGED and operation.results[0] is not None:
            merge = f"{operation.args[1]} {operation.results[0].dtype}"
        self._put(operation, Kind.COMM, inputs, _bytes(operation.results), work, group, merge)

    def _put(
        self,
        operation: Operation,
        kind: Kind,
        inputs: tuple[int, ...],
        size: float = 0,
        work: Work | None = None,
        group: str | None = None,
        merge: str | None = None,
        with_input: bool = False,
    ) -> None:
        self.index[operation.name] = len(self.nodes)
        node = Node(operation.name, kind, 0.0, size, inputs, group, operation.tile, merge, 0.0, with_input)
        self.nodes.append(node)
        self.works.append(work or Work(WorkKind.NONE))

    def _barrier(self, name: str) -> None:
        if self.nodes and self.nodes[-1].kind is not Kind.SYNC:
            self.nodes.append(Node(name, Kind.SYNC))
            self.works.append(Work(WorkKind.NONE))

    def _check(self, operation: Operation, inputs: tuple[int, ...]) -> None:
        """Only waits, and views on the way to one, take what a collective has not yet delivered."""
        index, kind = self.index[operation.name], self.nodes[self.index[operation.name]].kind
        flying = self.in_flight.intersection(inputs)
        if kind is Kind.COMM or (kind is Kind.VIEW and flying):
            self.in_flight.add(index)
        elif flying and kind is not Kind.WAIT:
            name = self.nodes[min(flying)].name
            raise ProgramRefused(f"node {operation.name}: takes the result of {name} before it is waited for")

    def check_outputs(self, outputs: Sequence[int]) -> None:
        for index in outputs:
            if index in self.in_flight:
                raise ProgramRefused(f"node {self.nodes[index].name}: is an output but nobody waits for it")


def _picked(program: CapturedProgram) -> dict[str, set[int]]:
    """Which results of operators with several are taken: each lives as long as its own users."""
    found: dict[str, set[int]] = {}
    for operation in program.operations:
        if operation.target == "getitem":
            found.setdefault(operation.args[0].name, set()).add(operation.args[1])
    return found


def _bytes(results: Sequence[TensorFact | None]) -> int:
    """As an allocator rounds them up."""
    return sum(
        -(-fact.size_bytes // _ALLOCATED_BYTES) * _ALLOCATED_BYTES
        for fact in results
        if fact is not None and fact.shape is not None
    )
