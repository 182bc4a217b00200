"""Operators that treat each item by itself, with broadcasting."""

from jobs.core.overlap.layouts import Layout
from jobs.core.overlap.operations import Ref, refs
from jobs.core.overlap.rules.outcome import DIFFERENT, Outcome, Tiling, View, Whole


def pointwise(view: View) -> Outcome:
    """The batch of the result is that of the operands, aligned from the last dimension."""
    aligned = aligned_operands(view)
    if aligned is None:
        return Whole(DIFFERENT)
    place, needs = aligned
    return Tiling((place,) * len(view.operation.results), needs)


def aligned_operands(view: View) -> tuple[Layout, dict[str, Layout]] | None:
    """Where the batch lies in the result, and the part of each operand that a tile takes."""
    rank = len(view.result_shape)
    places = {place.at(place.dim + rank - len(view.shape(ref))) for ref, place in view.tiled}
    if len(places) != 1:
        return None
    place = places.pop()
    if not place.fits(view.result_shape, view.batch):
        return None
    needs = shares(view, place, rank)
    return None if needs is None else (place, needs)


def shares(view: View, place: Layout, rank: int) -> dict[str, Layout] | None:
    """The operands that have the batch once they are aligned; None if one has something else there."""
    needs: dict[str, Layout] = {}
    for ref in operands(view):
        shape = view.shape(ref)
        dim = place.dim - (rank - len(shape))
        if dim < 0 or shape[dim] == 1:
            continue
        if not place.at(dim).fits(shape, view.batch):
            return None
        needs[ref.name] = place.at(dim)
    return needs


def operands(view: View) -> list[Ref]:
    """The tensors it takes, each once."""
    found = dict.fromkeys(refs((view.operation.args, dict(view.operation.kwargs))))
    return [ref for ref in found if view.facts(ref) is not None]


def alike(view: View) -> Outcome:
    """One operand, a result of its shape: copies, casts, views of the whole."""
    ref, place = view.tiled[0]
    if view.shape(ref) != view.result_shape:
        return Whole("its result has another shape than its operand")
    return Tiling((place,), {ref.name: place})
