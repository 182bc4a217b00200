"""Operators that change shapes: views, permutations, slices, concatenation."""

from collections.abc import Sequence
from typing import Any

from jobs.core.overlap.layouts import Layout, after_view
from jobs.core.overlap.operations import Ref
from jobs.core.overlap.rules.outcome import ALONG, DIFFERENT, Call, Outcome, Tiling, View, Whole, positive

_RESHAPE = "aten.reshape.default"


def view(of: View) -> Outcome:
    """A view: follow the batch through the shape. A tile may be strided, so that it needs a reshape."""
    ref, place = of.tiled[0]
    found = after_view(place, of.shape(ref), of.result_shape, of.batch)
    if found is None:
        return Whole("the view spreads the batch over several dimensions")
    shape, after = of.result_shape, found
    return Tiling(
        (found,),
        {ref.name: place},
        lambda part: of.with_arguments({1: list(after.shape(shape, part))}, _RESHAPE),
    )


def expand(of: View) -> Outcome:
    """Repeat without copying: dimensions are aligned from the last one."""
    ref, place = of.tiled[0]
    shape = of.result_shape
    found = place.at(place.dim + len(shape) - len(of.shape(ref)))
    return Tiling(
        (found,), {ref.name: place}, lambda part: of.with_arguments({1: list(found.shape(shape, part))})
    )


def _moved(of: View, dims: Sequence[int]) -> Outcome:
    """`dims[i]` is the operand's dimension that becomes the result's dimension i."""
    ref, place = of.tiled[0]
    return Tiling((place.at(dims.index(place.dim)),), {ref.name: place})


def permute(of: View) -> Outcome:
    rank = len(of.result_shape)
    return _moved(of, [positive(dim, rank) for dim in of.argument(1)])


def transpose(of: View) -> Outcome:
    rank = len(of.result_shape)
    dims = list(range(rank))
    first, second = positive(of.argument(1), rank), positive(of.argument(2), rank)
    dims[first], dims[second] = dims[second], dims[first]
    return _moved(of, dims)


def t(of: View) -> Outcome:
    return _moved(of, list(range(len(of.result_shape)))[::-1])


def unsqueeze(of: View) -> Outcome:
    ref, place = of.tiled[0]
    new = positive(of.argument(1), len(of.result_shape))
    return Tiling((place.at(place.dim + (new <= place.dim)),), {ref.name: place})


def squeeze(of: View) -> Outcome:
    """Without dimensions, of one dimension, or of several."""
    ref, place = of.tiled[0]
    shape = of.shape(ref)
    given = of.argument(1)
    dims = range(len(shape)) if given is None else [given] if isinstance(given, int) else given
    gone = [d for d in (positive(dim, len(shape)) for dim in dims) if shape[d] == 1]
    if place.dim in gone or of.batch == 1:
        return Whole("it may drop the dimension of the batch")
    if given is None:
        # A tile of one sample must keep its dimension.
        call = [d for d in range(len(shape)) if d in gone]
        found = place.at(place.dim - sum(d < place.dim for d in gone))
        return Tiling(
            (found,),
            {ref.name: place},
            lambda part: _squeeze_dims(of, call),
        )
    return Tiling((place.at(place.dim - sum(d < place.dim for d in gone)),), {ref.name: place})


def _squeeze_dims(of: View, dims: list[int]) -> Any:
    call = of.with_arguments({}, "aten.squeeze.dims")
    return type(call)(call.target, (call.args[0], dims), {})


def along_one(of: View) -> Outcome:
    """Slices, cumulative functions, softmax, sort: argument 1 is the dimension they work along."""
    default = _DEFAULT_DIM.get(of.operation.target, 0)
    return besides(of, of.operation.kwargs.get("dim", of.argument(1, default)))


def slice_(of: View) -> Outcome:
    """A slice of everything (`x[:]`) is the tile itself, even along the batch."""
    ref, place = of.tiled[0]
    if of.shape(ref) == of.result_shape:
        return Tiling((place,), {ref.name: place})
    return along_one(of)


_DEFAULT_DIM = {"aten.sort.default": -1, "aten.argsort.default": -1}


def split(of: View) -> Outcome:
    """Parts along argument 2; along the batch only parts that each hold the whole batch."""
    ref, place = of.tiled[0]
    dim = positive(of.operation.kwargs.get("dim", of.argument(2, 0)), len(of.shape(ref)))
    sizes = {fact.shape[dim] for fact in of.operation.results if fact is not None and fact.shape is not None}
    parts = len(of.operation.results)
    if dim != place.dim or len(sizes) != 1 or place.outer % parts:
        return besides(of, dim)
    found = Layout(dim, place.outer // parts, place.inner)
    given = of.argument(1)

    def call(part: int) -> Call:
        size = found.outer * part * found.inner
        return of.with_arguments({1: size if isinstance(given, int) else [size] * parts})

    return Tiling((found,) * parts, {ref.name: place}, call)


def topk(of: View) -> Outcome:
    return besides(of, of.operation.kwargs.get("dim", of.argument(2, -1)))


def besides(of: View, dim: int) -> Outcome:
    """Nothing changes for the batch as long as the operator works along another dimension."""
    ref, place = of.tiled[0]
    if positive(dim, len(of.shape(ref))) == place.dim:
        return Whole(f"it {ALONG}")
    return Tiling((place,) * len(of.operation.results), {ref.name: place})


def select(of: View) -> Outcome:
    """Take one index of a dimension, which goes."""
    ref, place = of.tiled[0]
    dim = positive(of.argument(1), len(of.shape(ref)))
    if dim == place.dim:
        return Whole("it picks single samples of the batch")
    return Tiling((place.at(place.dim - (dim < place.dim)),), {ref.name: place})


def unbind(of: View) -> Outcome:
    ref, place = of.tiled[0]
    dim = positive(of.argument(1, 0), len(of.shape(ref)))
    if dim == place.dim:
        return Whole("it takes the batch apart")
    found = place.at(place.dim - (dim < place.dim))
    return Tiling((found,) * len(of.operation.results), {ref.name: place})


def cat(of: View) -> Outcome:
    """Join along a dimension."""
    rank = len(of.result_shape)
    dim = positive(of.operation.kwargs.get("dim", of.argument(1, 0)), rank)
    places = {place for _, place in of.tiled}
    if len(places) != 1:
        return Whole(DIFFERENT)
    place = places.pop()
    if place.dim == dim:
        # Whole batches below each other: their number becomes the outermost factor.
        return _joined(of, place, Layout(dim, place.outer * len(of.argument(0)), place.inner))
    return _joined(of, place, place)


def stack(of: View) -> Outcome:
    """Join along a new dimension."""
    dim = positive(of.operation.kwargs.get("dim", of.argument(1, 0)), len(of.result_shape))
    places = {place for _, place in of.tiled}
    if len(places) != 1:
        return Whole(DIFFERENT)
    place = places.pop()
    return _joined(of, place, place.at(place.dim + (dim <= place.dim)))


def _joined(of: View, place: Layout, result: Layout) -> Outcome:
    members: list[Ref] = list(of.argument(0))
    if not all(place.fits(of.shape(ref), of.batch) for ref in members):
        return Whole("one of its operands lacks the batch")
    return Tiling((result,), {ref.name: place for ref in members})


def slice_backward(of: View) -> Outcome:
    """The gradient of a slice or selection along argument 2 of a tensor of shape argument 1."""
    ref, place = of.tiled[0]
    shape: list[int] = list(of.argument(1))
    dim = positive(of.argument(2), len(shape))
    selected = of.operation.target == "aten.select_backward.default"
    found = place.at(place.dim + (selected and dim <= place.dim))
    if not selected and dim == place.dim:
        return Whole(f"it {ALONG}")
    return Tiling(
        (found,), {ref.name: place}, lambda part: of.with_arguments({1: list(found.shape(shape, part))})
    )


def pad(of: View) -> Outcome:
    """Constants around the last dimensions."""
    ref, place = of.tiled[0]
    if place.dim >= len(of.shape(ref)) - len(of.argument(1)) // 2:
        return Whole(f"it {ALONG}")
    return Tiling((place,), {ref.name: place})


SHAPES = {
    "aten.view.default": view,
    "aten.reshape.default": view,
    "aten._unsafe_view.default": view,
    "aten.expand.default": expand,
    "aten.permute.default": permute,
    "aten.transpose.int": transpose,
    "aten.t.default": t,
    "aten.unsqueeze.default": unsqueeze,
    "aten.squeeze.default": squeeze,
    "aten.squeeze.dim": squeeze,
    "aten.squeeze.dims": squeeze,
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.unbind.int": unbind,
    "aten.split.Tensor": split,
    "aten.split_with_sizes.default": split,
    "aten.cat.default": cat,
    "aten.stack.default": stack,
    "aten.slice_backward.default": slice_backward,
    "aten.select_backward.default": slice_backward,
    "aten.constant_pad_nd.default": pad,
}
