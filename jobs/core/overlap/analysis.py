"""Which operators of a program can run tile by tile: a walk over the operators with the rules of each.

Tile, once for all, add up, or not at all. An operator that cannot is run once for the whole batch, which is
always right, and says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jobs.core.overlap.layouts import Layout, after_view
from jobs.core.overlap.operations import (
    POINTWISE,
    CapturedProgram,
    Operation,
    Ref,
    TensorFact,
    refs,
)
from jobs.core.overlap.rules import outcome
from jobs.core.overlap.rules.outcome import Combine, Outcome, Place, Tiling, View, Whole
from jobs.core.overlap.rules.pointwise import shares

_WHOLE = Layout(-1)
_FILLED = "aten.full.default"
_VIEWS = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
_ALIKE = ("aten.clone.default", "aten.detach.default", "aten.alias.default", "aten._to_copy.default")


@dataclass
class Analysis:
    """The outcome for each operator that sees the batch, by name, and where the batch lies in each value.

    Attributes:
        batch: samples in the whole batch.
        outcomes: operators that are not listed are shared: they do not see the batch.
    """

    program: CapturedProgram
    batch: int
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    places: dict[str, tuple[Place | Combine, ...]] = field(default_factory=dict)

    @property
    def untiled(self) -> list[tuple[str, str]]:
        """Operators with the batch in an operand that run whole, with the reason."""
        return [(name, found.reason) for name, found in self.outcomes.items() if isinstance(found, Whole)]

    @property
    def tiled(self) -> int:
        """How many operators run once for each tile."""
        return sum(isinstance(found, Tiling) for found in self.outcomes.values())

    def place(self, ref: Ref) -> Place:
        """Where the batch lies in a value; what was combined is shared."""
        found = self.places.get(ref.name, (None,))[0]
        return found if isinstance(found, Layout) else None


def analyse(program: CapturedProgram, batch_dims: Mapping[str, int], batch: int) -> Analysis:
    """Walk over the program.

    Args:
        batch_dims: the batch dimension of each input that has one.
        batch: its size.
    """
    found = Analysis(program, batch)
    facts = _facts(program)
    for name, dim in batch_dims.items():
        found.places[name] = (Layout(dim),)
    for operation in program.operations:
        seen = found.places.get(operation.args[0].name) if operation.target == "getitem" else None
        if seen is not None:
            _pick(found, operation, seen)
            continue
        view = _view(found, operation, facts)
        if not view.tiled:
            continue
        decided = _checked(outcome(view), view)
        found.outcomes[operation.name] = decided
        if isinstance(decided, Tiling):
            found.places[operation.name] = decided.results
        elif decided.keeps is not None:
            found.places[operation.name] = (decided.keeps,) + (None,) * (len(operation.results) - 1)
    _sink(found, facts)
    return found


def _facts(program: CapturedProgram) -> dict[str, TensorFact | None]:
    facts: dict[str, TensorFact | None] = dict(program.inputs)
    for operation in program.operations:
        facts[operation.name] = operation.results[0] if operation.single else None
    return facts


def _view(found: Analysis, operation: Operation, facts: Mapping[str, TensorFact | None]) -> View:
    named = dict.fromkeys(refs((operation.args, dict(operation.kwargs))))
    tensors = tuple(ref for ref in named if facts.get(ref.name) is not None)
    return View(operation, found.batch, lambda ref: facts.get(ref.name), found.place, tensors)


def _pick(found: Analysis, operation: Operation, places: tuple[Place | Combine, ...]) -> None:
    """One result of an operator with several."""
    source, index = operation.args
    of_source = found.outcomes.get(source.name)
    place = places[index]
    found.places[operation.name] = (place,)
    if isinstance(of_source, Tiling):
        found.outcomes[operation.name] = Tiling((place,), {source.name: _WHOLE})


def _checked(decided: Outcome, view: View) -> Outcome:
    """No rule may claim the batch where the program's shapes say otherwise."""
    if isinstance(decided, Whole):
        return decided
    for ref, place in view.tiled:
        if decided.needs.get(ref.name) != place:
            return Whole("it takes an operand with the batch in another dimension")
    for result, fact in zip(decided.results, view.operation.results, strict=True):
        if isinstance(result, Layout) and fact is not None and not result.fits(fact.shape or (), view.batch):
            return Whole("its result has no dimension for the batch")
    return decided


def _sink(found: Analysis, facts: Mapping[str, TensorFact | None]) -> None:
    """Cheap shared operators of which everybody takes a tile's part are run per tile as well.

    Gradients of a loss begin so: a one, expanded to the batch. Whole they would cost memory for all tiles.
    """
    demands: dict[str, set[Layout]] = {}
    for ref in refs(found.program.outputs):
        demands.setdefault(ref.name, set()).add(_WHOLE)
    for operation in reversed(found.program.operations):
        wanted = demands.get(operation.name, set())
        if operation.name not in found.outcomes and len(wanted) == 1 and _WHOLE not in wanted:
            sunk = _sunk(_view(found, operation, facts), next(iter(wanted)))
            if sunk is not None:
                found.outcomes[operation.name] = sunk
                found.places[operation.name] = sunk.results
        decided = found.outcomes.get(operation.name)
        needs = decided.needs if isinstance(decided, Tiling) else {}
        for name in operation.inputs:
            demands.setdefault(name, set()).add(needs.get(name, _WHOLE))


def _sunk(view: View, place: Layout) -> Tiling | None:
    """How a shared operator makes only a tile's part of its result."""
    operation, shape = view.operation, view.result_shape
    if operation.target == _FILLED:
        return Tiling((place,), {}, lambda part: view.with_arguments({0: list(place.shape(shape, part))}))
    if len(view.tensors) == 1 and operation.target in _ALIKE:
        return Tiling((place,), {view.tensors[0].name: place})
    if operation.target == "aten.expand.default":
        needs = shares(view, place, len(shape))
        if needs is None:
            return None
        return Tiling((place,), needs, lambda part: view.with_arguments({1: list(place.shape(shape, part))}))
    if operation.target in _VIEWS:
        before = after_view(place, shape, view.shape(view.tensors[0]), view.batch)
        if before is None:
            return None
        target = "aten.reshape.default"
        return Tiling(
            (place,),
            {view.tensors[0].name: before},
            lambda part: view.with_arguments({1: list(place.shape(shape, part))}, target),
        )
    if operation.traits == {POINTWISE} and operation.single:
        needs = shares(view, place, len(shape))
        return None if not needs else Tiling((place,), needs)
    return None


def tile_fact(fact: TensorFact | None, place: Place | Combine, part: int) -> TensorFact | None:
    """What a tile's result is like."""
    if fact is None or fact.shape is None or not isinstance(place, Layout):
        return fact
    return replace(fact, shape=place.shape(fact.shape, part))
