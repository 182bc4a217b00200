"""Matrix products and reductions: the batch stays outside, or the tiles' results are added up."""

from collections.abc import Callable
from typing import Any

from jobs.core.overlap.layouts import Layout
from jobs.core.overlap.operations import Ref
from jobs.core.overlap.rules.outcome import ALONG, DIFFERENT, Combine, Outcome, Place, Tiling, View, Whole
from jobs.core.overlap.rules.outcome import positive as from_front
from jobs.core.overlap.rules.pointwise import shares


def matrix_product(of: View) -> Outcome:
    """mm (rows x inner, inner x columns) and bmm (the same behind a common first dimension)."""
    first, second = of.argument(0), of.argument(1)
    return _product(of, first, second, of.operation.target == "aten.bmm.default")


def _product(of: View, first: Ref, second: Ref, batched: bool) -> Outcome:
    offset = int(batched)
    rows, inner, columns = offset, offset + 1, offset + 1
    left, right = of.places(first), of.places(second)
    if batched and 0 in {place.dim for place in (left, right) if place}:
        return _common(of, first, second, left, right)
    if left and left.dim == rows and right is None:
        return Tiling((left,), {first.name: left})
    if right and right.dim == columns and left is None:
        return Tiling((right,), {second.name: right})
    summed = left if left and left.dim == inner else right if right and right.dim == offset else None
    if summed is None:
        return Whole(DIFFERENT)
    needs = {first.name: summed.at(inner), second.name: summed.at(offset)}
    return _if_fitting(of, needs, (Combine(),), (first, second))


def _common(of: View, first: Ref, second: Ref, left: Place, right: Place) -> Outcome:
    """The batch is (part of) the first dimension of both."""
    place = left if left and left.dim == 0 else right
    assert place is not None
    return _if_fitting(of, {first.name: place, second.name: place}, (place,), (first, second))


def _if_fitting(
    of: View, needs: dict[str, Layout], results: tuple[Place | Combine, ...], operands: tuple[Ref, ...]
) -> Outcome:
    """Refuse where an operand has the batch elsewhere or not at all."""
    for ref in operands:
        need, place = needs[ref.name], of.places(ref)
        if (place is not None and place != need) or not need.fits(of.shape(ref), of.batch):
            return Whole(DIFFERENT)
    return Tiling(results, needs)


def add_product(of: View) -> Outcome:
    """addmm, baddbmm: a product plus a bias, which is added once, so that tiles must not be summed."""
    bias, first, second = of.argument(0), of.argument(1), of.argument(2)
    found = _product(of, first, second, of.operation.target == "aten.baddbmm.default")
    if isinstance(found, Whole):
        return found
    place = found.results[0]
    if not isinstance(place, Layout):
        return Whole("it sums over the batch and adds a bias")
    rank, shape = len(of.result_shape), of.shape(bias)
    dim = place.dim - (rank - len(shape))
    needs = dict(found.needs)
    if dim >= 0 and shape[dim] != 1:
        needs[bias.name] = place.at(dim)
    if of.places(bias) not in (None, needs.get(bias.name)):
        return Whole(DIFFERENT)
    return Tiling(found.results, needs)


def linear(of: View) -> Outcome:
    """x (..., inner) times the transposed weight; the batch may only be in the leading dimensions of x."""
    ref, place = of.tiled[0]
    if len(of.tiled) > 1 or ref != of.argument(0) or place.dim == len(of.shape(ref)) - 1:
        return Whole(DIFFERENT)
    return Tiling((place,), {ref.name: place})


def outer_product(of: View) -> Outcome:
    """mv: a matrix times a vector."""
    matrix, vector = of.argument(0), of.argument(1)
    left, right = of.places(matrix), of.places(vector)
    if left and left.dim == 0 and right is None:
        return Tiling((left,), {matrix.name: left})
    summed = right or left
    if summed is None or (left and left.dim == 0):
        return Whole(DIFFERENT)
    return _if_fitting(of, {matrix.name: summed.at(1), vector.name: summed}, (Combine(),), (matrix, vector))


def reduction(how: str | None, weighted: bool = False, dims_at: int | None = 1) -> Callable[[View], Outcome]:
    """A reduction over some dimensions, or over all.

    Args:
        how: how results of tiles combine when the batch is reduced; None where they cannot.
        dims_at: position of the dimensions among the arguments; None for a reduction over everything.
    """

    def rule(of: View) -> Outcome:
        ref, place = of.tiled[0]
        rank = len(of.shape(ref))
        given = None if dims_at is None else of.operation.kwargs.get("dim", of.argument(dims_at))
        dims = [given] if isinstance(given, int) else list(given or range(rank))
        gone = {from_front(dim, rank) for dim in dims}
        count = len(of.operation.results)
        if place.dim in gone:
            if how is None or count != 1:
                return Whole(f"it {ALONG}, and its parts do not add up")
            return Tiling((Combine(how, weighted),), {ref.name: place})
        kept = len(of.result_shape) == rank
        after = place if kept else place.at(place.dim - sum(dim < place.dim for dim in gone))
        return Tiling((after,) * count, {ref.name: place})

    return rule


def dot(of: View) -> Outcome:
    """A sum of products of two vectors."""
    first, second = of.argument(0), of.argument(1)
    place = of.tiled[0][1]
    return _if_fitting(of, {first.name: place, second.name: place}, (Combine(),), (first, second))


def gather(of: View) -> Outcome:
    """gather, scatter and their kin: (self, dim, index, ...); samples do not mix along another dimension."""
    rank = len(of.result_shape)
    dim = from_front(of.argument(1), rank)
    places = {place for _, place in of.tiled}
    if len(places) != 1:
        return Whole(DIFFERENT)
    place = places.pop()
    if place.dim == dim:
        return Whole(f"it {ALONG}")
    needs = shares(of, place, rank)
    if needs is None or len(needs) < len(of.tensors):
        return Whole("one of its operands lacks the batch")
    return Tiling((place,) * len(of.operation.results), needs)


def index_select(of: View) -> Outcome:
    """Pick along another dimension, or look rows of a shared table up."""
    source, dim, index = of.argument(0), of.argument(1), of.argument(2)
    place, picked = of.places(source), of.places(index)
    dim = from_front(dim, len(of.shape(source)))
    if place is None and picked is not None:
        return Tiling((picked.at(dim),), {index.name: picked})
    if place is None or picked is not None or place.dim == dim:
        return Whole(f"it {ALONG}")
    return Tiling((place,), {source.name: place})


_NOT_ADDITIVE: Any = reduction(None)

ALGEBRA: dict[str, Callable[[View], Outcome]] = {
    "aten.mm.default": matrix_product,
    "aten.bmm.default": matrix_product,
    "aten.addmm.default": add_product,
    "aten.baddbmm.default": add_product,
    "aten.linear.default": linear,
    "aten.mv.default": outer_product,
    "aten.dot.default": dot,
    "aten.sum.default": reduction("sum", dims_at=None),
    "aten.sum.dim_IntList": reduction("sum"),
    "aten.mean.default": reduction("sum", weighted=True, dims_at=None),
    "aten.mean.dim": reduction("sum", weighted=True),
    "aten.amax.default": reduction("max"),
    "aten.amin.default": reduction("min"),
    "aten.max.default": reduction("max", dims_at=None),
    "aten.min.default": reduction("min", dims_at=None),
    "aten.max.dim": _NOT_ADDITIVE,
    "aten.min.dim": _NOT_ADDITIVE,
    "aten.argmax.default": _NOT_ADDITIVE,
    "aten.argmin.default": _NOT_ADDITIVE,
    "aten.prod.dim_int": _NOT_ADDITIVE,
    "aten.var.correction": _NOT_ADDITIVE,
    "aten.var_mean.correction": _NOT_ADDITIVE,
    "aten.std.correction": _NOT_ADDITIVE,
    "aten.logsumexp.default": _NOT_ADDITIVE,
    "aten.any.dim": _NOT_ADDITIVE,
    "aten.all.dim": _NOT_ADDITIVE,
    "aten.linalg_vector_norm.default": reduction(None, dims_at=2),
    "aten.gather.default": gather,
    "aten.scatter.src": gather,
    "aten.scatter.value": gather,
    "aten.scatter_add.default": gather,
    "aten.index_select.default": index_select,
}
