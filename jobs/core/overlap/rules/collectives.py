"""Collectives: what each rank holds in tiles must be what it would hold of the whole batch."""

from collections.abc import Callable
from typing import Any

from jobs.core.overlap.layouts import Layout
from jobs.core.overlap.operations import Ref, refs
from jobs.core.overlap.rules.outcome import DIFFERENT, Call, Outcome, Tiling, View, Whole

NAMESPACE = "_c10d_functional."
ACROSS = "the collective cuts the batch apart, so that a tile's result is another part of the whole"


def itemwise(of: View) -> Outcome:
    """All-reduce and broadcast treat each item by itself, waits too."""
    places = tuple(of.places(ref) for ref in _members(of))
    if None in places or len(set(places)) != 1:
        return Whole(DIFFERENT)
    needs = {ref.name: place for ref, place in of.tiled}
    return Tiling(places if not of.operation.single else places[:1], needs)


def _members(of: View) -> list[Ref]:
    first = of.argument(0)
    return list(refs(first))


def all_gather(of: View) -> Outcome:
    """(tensor, ranks, group): along the first dimension; the ranks come outside the batch."""
    ref, place = of.tiled[0]
    ranks: int = of.argument(1)
    after = place if place.dim else Layout(0, place.outer * ranks, place.inner)
    return Tiling((after,), {ref.name: place})


def reduce_scatter(of: View) -> Outcome:
    """(tensor, operation, ranks, group): along the first dimension, which must not be the batch itself."""
    ref, place = of.tiled[0]
    ranks: int = of.argument(2)
    if place.dim:
        return Tiling((place,), {ref.name: place})
    outer, rest = divmod(place.outer, ranks)
    if rest or not outer:
        return Whole(ACROSS)
    return Tiling((Layout(0, outer, place.inner),), {ref.name: place})


def all_to_all(of: View) -> Outcome:
    """(tensor, output splits, input splits, group): along the first dimension.

    Tiles do so where the batch lies inside the parts: equal parts of whole batches, or one peer that gets
    everything (a hop of ring attention).
    """
    ref, place = of.tiled[0]
    received, sent = of.argument(1), of.argument(2)
    if place.dim:
        return Tiling((place,), {ref.name: place})
    if not all(isinstance(size, int) for size in (*received, *sent)):
        return Whole("its parts are known only at run time")
    size = of.shape(ref)[0]
    one_peer = received.count(0) == len(received) - 1 and sent.count(0) == len(sent) - 1
    even = len(set(sent)) == 1 and len(set(received)) == 1 and place.outer % len(sent) == 0
    if not (even or (one_peer and max(sent) == max(received) == size)):
        return Whole(ACROSS)
    return Tiling((place,), {ref.name: place}, lambda part: _parts(of, received, sent, part))


def _parts(of: View, received: list[int], sent: list[int], part: int) -> Call:
    scaled: list[Any] = [[size * part // of.batch for size in sizes] for sizes in (received, sent)]
    return of.with_arguments({1: scaled[0], 2: scaled[1]})


COLLECTIVES: dict[str, Callable[[View], Outcome]] = {
    "_c10d_functional.all_reduce.default": itemwise,
    "_c10d_functional.all_reduce_coalesced.default": itemwise,
    "_c10d_functional.broadcast.default": itemwise,
    "_c10d_functional.wait_tensor.default": itemwise,
    "_c10d_functional.all_gather_into_tensor.default": all_gather,
    "_c10d_functional.reduce_scatter_tensor.default": reduce_scatter,
    "_c10d_functional.all_to_all_single.default": all_to_all,
}
