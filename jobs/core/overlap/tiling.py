"""A program in tiles: the operators that can run once for each tile, the others for the whole batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from jobs.core.overlap.analysis import Analysis, analyse, tile_fact
from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.layouts import Layout, tile_sizes
from jobs.core.overlap.operations import (
    BARRIER,
    COLLECTIVE,
    MUTATES,
    POINTWISE,
    RANDOM,
    CapturedProgram,
    Operation,
    Ref,
    TensorFact,
    replace_refs,
)
from jobs.core.overlap.rules.outcome import Call, Combine, Tiling

_JOINERS = {"sum": "aten.add.Tensor", "max": "aten.maximum.default", "min": "aten.minimum.default"}
_POINTWISE = frozenset({*_JOINERS.values(), "aten.mul.Tensor"})
ORDERED = frozenset({BARRIER, MUTATES, RANDOM})
"""Traits of operators that keep their place in the program."""


@dataclass(frozen=True)
class TiledProgram:
    """A program in tiles, tile by tile in order.

    Attributes:
        sizes: samples of each tile; a single one where the program is as it was.
        untiled: operators that run whole although they see the batch, each with the reason.
    """

    program: CapturedProgram
    sizes: tuple[int, ...]
    untiled: tuple[tuple[str, str], ...] = ()

    @property
    def tiles(self) -> int:
        return len(self.sizes)


def tile(program: CapturedProgram, batch_dims: Mapping[str, int], tiles: int) -> TiledProgram:
    """Cut the batch into tiles.

    Args:
        batch_dims: the batch dimension of each input that has one; their sizes are equal.
        tiles: how many; with one, or where nothing can be tiled, the program stays as it is.

    Raises:
        ProgramRefused: an operator changes in place what is no input, so that the graph is not functional.
    """
    _check_functional(program)
    batches = {(program.inputs[name].shape or ())[dim] for name, dim in batch_dims.items()}
    if not batches:
        return TiledProgram(program, (1,), (("inputs", "no input has a batch dimension"),))
    batch = batches.pop()
    if tiles == 1:
        return TiledProgram(program, (batch,))
    if batch < tiles:
        reason = f"a batch of {batch} cannot be cut into {tiles} tiles"
        return TiledProgram(program, (batch,), ((next(iter(batch_dims)), reason),))
    analysis = analyse(program, batch_dims, batch)
    if not analysis.tiled:
        return TiledProgram(program, (batch,), tuple(analysis.untiled))
    sizes = tile_sizes(batch, tiles)
    made = _Instance(analysis, sizes)
    for operation in program.operations:
        made.add(operation)
    outputs = replace_refs(program.outputs, lambda ref: Ref(made.whole(ref.name)))
    operations = tile_by_tile(made.operations, tiles)
    return TiledProgram(
        CapturedProgram(program.inputs, tuple(operations), outputs), sizes, tuple(analysis.untiled)
    )


def _check_functional(program: CapturedProgram) -> None:
    for operation in program.operations:
        changed = operation.args[0] if operation.args else None
        if MUTATES in operation.traits and not (isinstance(changed, Ref) and changed.name in program.inputs):
            raise ProgramRefused(
                f"node {operation.name}: {operation.target} changes a tensor in place that is no input of the"
                " program; capture it without operations in place"
            )


@dataclass
class _Instance:
    analysis: Analysis
    sizes: tuple[int, ...]
    operations: list[Operation] = field(default_factory=list)
    tiles: dict[str, list[str]] = field(default_factory=dict)
    wholes: dict[str, str] = field(default_factory=dict)
    parts: dict[tuple[str, Layout, int], str] = field(default_factory=dict)
    facts: dict[str, TensorFact | None] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        program = self.analysis.program
        self.facts.update(program.inputs)
        self.wholes.update({name: name for name in program.inputs})
        self.taken = {*program.inputs, *(operation.name for operation in program.operations)}
        self.starts = [0, *accumulate(self.sizes)]

    def add(self, operation: Operation) -> None:
        """Run an operator of the program, whole or once for each tile."""
        self.facts[operation.name] = operation.results[0] if operation.single else None
        decided = self.analysis.outcomes.get(operation.name)
        if not isinstance(decided, Tiling):
            arguments = replace_refs(
                (operation.args, operation.kwargs), lambda ref: Ref(self.whole(ref.name))
            )
            self.operations.append(
                replace(operation, args=arguments[0], kwargs=arguments[1], source=operation.name)
            )
            self.wholes[operation.name] = operation.name
            return
        for number, part in enumerate(self.sizes):
            self._add_tile(operation, decided, number, part)
        if operation.single and isinstance(decided.results[0], Combine):
            self._combine(operation, decided.results[0])

    def _add_tile(self, operation: Operation, decided: Tiling, number: int, part: int) -> None:
        call = (
            decided.call(part) if decided.call else Call(operation.target, operation.args, operation.kwargs)
        )
        needs, packed = decided.needs, COLLECTIVE in operation.traits

        def given(ref: Ref) -> Ref:
            if ref.name in needs:
                return Ref(self._part(ref.name, needs[ref.name], number, packed))
            return Ref(self.whole(ref.name))

        args, kwargs = replace_refs((call.args, call.kwargs), given)
        results = tuple(
            tile_fact(fact, place, part)
            for fact, place in zip(operation.results, decided.results, strict=True)
        )
        name = self._name(f"{operation.name}_tile{number}")
        made = replace(operation, name=name, target=call.target, args=args, kwargs=kwargs, results=results)
        self.operations.append(replace(made, tile=number, source=operation.name))
        self.tiles.setdefault(operation.name, []).append(name)

    def _name(self, wish: str) -> str:
        name, number = wish, 1
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name

    def _make(
        self, wish: str, target: str, args: tuple[Any, ...], fact: TensorFact | None, tile: int | None
    ) -> str:
        name = self._name(wish)
        traits = frozenset({POINTWISE}) if target in _POINTWISE else frozenset()
        self.operations.append(Operation(name, target, args, {}, (fact,), traits=traits, tile=tile))
        return name

    def _part(self, name: str, place: Layout, number: int, packed: bool) -> str:
        """A tile's part of a value: its own result, or a slice of the whole."""
        if name in self.tiles and place in (Layout(-1), self.analysis.places[name][0]):
            return self.tiles[name][number]
        key = (name, place, number)
        if key not in self.parts:
            self.parts[key] = self._slice(name, place, number)
        if packed and place.dim > 0:
            fact = tile_fact(self.facts[name], place, self.sizes[number])
            whole = Ref(self.parts[key])
            return self._make(f"{name}_packed{number}", "aten.contiguous.default", (whole,), fact, number)
        return self.parts[key]

    def _slice(self, name: str, place: Layout, number: int) -> str:
        fact = self.facts[name]
        assert fact is not None
        assert fact.shape is not None
        low, high = self.starts[number], self.starts[number + 1]
        shape, dim = fact.shape, place.dim
        inner = place.inner
        source, wish = Ref(self.whole(name)), f"{name}_part{number}"
        part = replace(fact, shape=place.shape(shape, high - low))
        if place.outer > 1:
            split = (*shape[:dim], place.outer, shape[dim] // place.outer, *shape[dim + 1 :])
            source = Ref(self._view(f"{wish}_of", source, replace(fact, shape=split), number))
            dim += 1
            cut = (*split[:dim], (high - low) * inner, *split[dim + 1 :])
            middle = replace(fact, shape=cut)
            arguments = (source, dim, low * inner, high * inner)
            source = Ref(self._make(f"{wish}_cut", "aten.slice.Tensor", arguments, middle, number))
            return self._view(wish, source, part, number)
        return self._make(wish, "aten.slice.Tensor", (source, dim, low * inner, high * inner), part, number)

    def _view(self, wish: str, source: Ref, fact: TensorFact, tile: int | None) -> str:
        shape = list(fact.shape or ())
        return self._make(wish, "aten.reshape.default", (source, shape), fact, tile)

    def whole(self, name: str) -> str:
        """The whole value: as it is, or its tiles joined."""
        if name not in self.wholes:
            place = self.analysis.places[name][0]
            fact = self.facts[name]
            assert isinstance(place, Layout)
            assert fact is not None
            self.wholes[name] = self._join(name, place, fact)
        return self.wholes[name]

    def _join(self, name: str, place: Layout, fact: TensorFact) -> str:
        members = [Ref(part) for part in self.tiles[name]]
        shape, dim = fact.shape or (), place.dim
        if place.outer == 1:
            return self._make(f"{name}_whole", "aten.cat.default", (members, dim), fact, None)
        split = []
        for number, member in enumerate(members):
            rows = self.sizes[number] * place.inner
            cut = replace(fact, shape=(*shape[:dim], place.outer, rows, *shape[dim + 1 :]))
            split.append(Ref(self._view(f"{name}_rows{number}", member, cut, None)))
        joined = replace(
            fact, shape=(*shape[:dim], place.outer, shape[dim] // place.outer, *shape[dim + 1 :])
        )
        middle = self._make(f"{name}_joined", "aten.cat.default", (split, dim + 1), joined, None)
        return self._view(f"{name}_whole", Ref(middle), fact, None)

    def _combine(self, operation: Operation, how: Combine) -> None:
        """Add up as soon as both exist, so that no tile's result outlives the next one."""
        members, fact = self.tiles[operation.name], operation.results[0]
        if how.how == "first":
            self.wholes[operation.name] = members[0]
            return
        if how.weighted:
            total = self.analysis.batch
            members = [
                self._make(f"{name}_share", "aten.mul.Tensor", (Ref(name), size / total), fact, number)
                for number, (name, size) in enumerate(zip(members, self.sizes, strict=True))
            ]
        result = members[0]
        for number, member in enumerate(members[1:], start=1):
            pair = (Ref(result), Ref(member))
            result = self._make(f"{operation.name}_{how.how}{number}", _JOINERS[how.how], pair, fact, None)
        self.wholes[operation.name] = result


def tile_by_tile(operations: Sequence[Operation], tiles: int) -> list[Operation]:
    """Each tile as far as it goes before the next one; shared operators as soon as they can run.

    Operators that are ordered by their effects keep their place, and nothing crosses them.
    """
    found: list[Operation] = []
    stretch: list[Operation] = []
    for operation in operations:
        if operation.traits & ORDERED:
            found += [*_streams(stretch, tiles), operation]
            stretch = []
        else:
            stretch.append(operation)
    return [*found, *_streams(stretch, tiles)]


def _streams(operations: list[Operation], tiles: int) -> list[Operation]:
    pending = {operation.name for operation in operations}
    streams: list[list[Operation]] = [[] for _ in range(tiles)]
    shared: dict[str, Operation] = {}
    users: dict[str, list[str]] = {}
    for operation in operations:
        if operation.tile is None:
            shared[operation.name] = operation
            for name in operation.inputs:
                users.setdefault(name, []).append(operation.name)
        else:
            streams[operation.tile].append(operation)
    found: list[Operation] = []
    blocked = {name: sum(i in pending for i in operation.inputs) for name, operation in shared.items()}

    def emit(operation: Operation) -> None:
        stack = [operation]
        while stack:
            one = stack.pop()
            found.append(one)
            pending.discard(one.name)
            for user in users.get(one.name, ()):
                blocked[user] -= 1
                if blocked[user] == 0:
                    stack.append(shared[user])

    for name, operation in shared.items():
        if blocked[name] == 0 and name in pending:
            emit(operation)
    at = [0] * tiles
    while any(at[k] < len(stream) for k, stream in enumerate(streams)):
        for k, stream in enumerate(streams):
            while at[k] < len(stream) and not pending.intersection(stream[at[k]].inputs):
                emit(stream[at[k]])
                at[k] += 1
    return found
