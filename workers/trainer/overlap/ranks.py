"""Every rank of a program in one process: graphs run side by side, collectives exchange real tensors.

A collective is matched by its place in its group's sequence, as a communication library does. Different
operations, shapes or types at one place, ranks that wait for each other, and an input that changes between
issue and wait are errors here; on a cluster they are wrong numbers or a hang.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from jobs.core.overlap.errors import JobError
from jobs.core.overlap.operations import COLLECTIVE, RANDOM, WAIT, Operation
from workers.trainer.overlap.conversion import name_of, program_of

Values = list[torch.Tensor]
Groups = Callable[[str], Sequence[int]]


class RanksDisagree(JobError):
    """Ranks would hang or exchange wrong tensors; the message names the collective."""


@dataclass
class _Exchange:
    """One collective: what each rank brought, and as what."""

    ranks: tuple[int, ...]
    signature: tuple[Any, ...]
    node: str
    brought: dict[int, Values] = field(default_factory=dict)
    arguments: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.brought) == len(self.ranks)


@dataclass(frozen=True)
class _InFlight:
    exchange: _Exchange
    rank: int
    given: Values
    index: int | None = None


@dataclass
class _Board:
    exchanges: dict[tuple[tuple[int, ...], int], _Exchange] = field(default_factory=dict)

    def post(
        self, rank: int, ranks: tuple[int, ...], number: int, node: Node, args: tuple[Any, ...]
    ) -> _InFlight:
        name = name_of(node.target)
        first = args[0]
        tensors: Values = list(first) if isinstance(first, list | tuple) else [first]
        exact = "all_to_all" not in name
        shapes = tuple((tuple(t.shape) if exact else t.dim(), t.dtype) for t in tensors)
        texts = tuple(value for value in args[1:-1] if isinstance(value, str))
        signature = (name, shapes, texts)
        exchange = self.exchanges.setdefault((ranks, number), _Exchange(ranks, signature, node.name))
        if exchange.signature != signature:
            raise RanksDisagree(
                f"node {node.name}: collective {number} of ranks {list(ranks)} is {name} of {shapes}"
                f" on rank {rank},"
                f" but {exchange.signature[0]} of {exchange.signature[1]} on another rank"
            )
        exchange.brought[rank] = [tensor.clone() for tensor in tensors]
        exchange.arguments[rank] = args
        return _InFlight(exchange, rank, tensors)


def run_ranks(
    modules: Sequence[GraphModule], values: Sequence[Values], groups: Sequence[Groups], seed: int = 0
) -> list[Any]:
    """Run one module for each rank; return their outputs, and change what they change in place.

    Raises:
        RanksDisagree: see the module.
    """
    board = _Board()
    runs = [
        _run(rank, module, list(inputs), ranks_of, board, seed)
        for rank, (module, inputs, ranks_of) in enumerate(zip(modules, values, groups, strict=True))
    ]
    outputs: list[Any] = [None] * len(runs)
    waiting: dict[int, _InFlight | None] = dict.fromkeys(range(len(runs)))
    while waiting:
        ready = [rank for rank, flight in waiting.items() if flight is None or flight.exchange.complete]
        if not ready:
            flight = next(iter(waiting.values()))
            assert flight is not None
            missing = sorted(set(flight.exchange.ranks) - set(flight.exchange.brought))
            raise RanksDisagree(f"node {flight.exchange.node}: ranks {missing} never take part in it")
        for rank in ready:
            try:
                waiting[rank] = next(runs[rank])
            except StopIteration as end:
                outputs[rank] = end.value
                del waiting[rank]
    return outputs


def _run(
    rank: int, module: GraphModule, inputs: Values, ranks_of: Groups, board: _Board, seed: int
) -> Generator[_InFlight, None, Any]:
    """One rank; yields while it waits for the others."""
    operations = {operation.name: operation for operation in program_of(module).operations}
    last_use = _last_uses(module)
    random = _Random(seed + rank)
    counts: dict[tuple[int, ...], int] = {}
    held: dict[Node, Any] = {}
    given = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            held[node] = next(given)
        elif node.op == "get_attr":
            held[node] = getattr(module, str(node.target))
        elif node.op == "output":
            return map_arg(node.args[0], lambda n: held[n])
        else:
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: held[n])
            operation = operations[node.name]
            if COLLECTIVE in operation.traits:
                ranks = tuple(ranks_of(args[-1]))
                number = counts[ranks] = counts.get(ranks, -1) + 1
                held[node] = board.post(rank, ranks, number, node, args)
            elif WAIT in operation.traits and isinstance(args[0], _InFlight):
                while not args[0].exchange.complete:
                    yield args[0]
                held[node] = _delivered(args[0], node)
            elif isinstance(args[0] if args else None, _InFlight):
                held[node] = _InFlight(args[0].exchange, rank, args[0].given, args[1])
            else:
                held[node] = random.call(operation, node, args, kwargs)
        for gone in last_use.get(node, ()):
            held.pop(gone, None)
    return None


def _last_uses(module: GraphModule) -> dict[Node, list[Node]]:
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(module.graph.nodes):
        for source in node.all_input_nodes:
            if source not in seen:
                seen.add(source)
                found.setdefault(node, []).append(source)
    return found


@dataclass
class _Random:
    """Each rank draws from its own stream, whatever the others do in between."""

    seed: int
    state: torch.Tensor | None = None

    def call(self, operation: Operation, node: Node, args: Any, kwargs: Any) -> Any:
        assert callable(node.target)
        if RANDOM not in operation.traits:
            return node.target(*args, **kwargs)
        before = torch.get_rng_state()
        if self.state is None:
            torch.manual_seed(self.seed)
        else:
            torch.set_rng_state(self.state)
        try:
            return node.target(*args, **kwargs)
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(before)


def _delivered(flight: _InFlight, node: Node) -> Any:
    """What a wait returns; the input must still be what it was at issue."""
    exchange, rank = flight.exchange, flight.rank
    for now, then in zip(flight.given, exchange.brought[rank], strict=True):
        if not _same(now, then):
            raise RanksDisagree(f"node {node.name}: the input of {exchange.node} changed before this wait")
    results = _exchanged(exchange, rank)
    return results[flight.index or 0]


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and bool(((first == second) | (first != first)).all())


def _exchanged(exchange: _Exchange, rank: int) -> Values:
    name, args = exchange.signature[0].split(".")[1], exchange.arguments[rank]
    members = [exchange.brought[one] for one in exchange.ranks]
    me = exchange.ranks.index(rank)
    columns = list(zip(*members, strict=True))
    if name.startswith("all_reduce"):
        return [_reduced(column, args[1]) for column in columns]
    if name.startswith("all_gather"):
        return [torch.cat(column) for column in columns]
    if name.startswith("reduce_scatter"):
        return [_reduced(column, args[1]).chunk(len(members))[me].clone() for column in columns]
    if name.startswith("broadcast"):
        return [column[exchange.ranks.index(args[1])].clone() for column in columns]
    parts = [
        torch.split(exchange.brought[one][0], list(exchange.arguments[one][2]))[me] for one in exchange.ranks
    ]
    if [len(part) for part in parts] != list(args[1]):
        raise RanksDisagree(f"node {exchange.node}: rank {rank} expects other sizes than it is sent")
    return [torch.cat(parts)]


_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda stacked: stacked.sum(0),
    "avg": lambda stacked: stacked.mean(0),
    "max": lambda stacked: stacked.amax(0),
    "min": lambda stacked: stacked.amin(0),
    "product": lambda stacked: stacked.prod(0),
}


def _reduced(column: Sequence[torch.Tensor], how: str) -> torch.Tensor:
    if how.lower() not in _REDUCTIONS:
        raise RanksDisagree(f"the reduction {how} is not known")
    return _REDUCTIONS[how.lower()](torch.stack(list(column))).to(column[0].dtype)
