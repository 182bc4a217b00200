"""Layers that ATen keeps whole: norms, attention, convolution, embedding, losses."""

from collections.abc import Callable

from jobs.core.overlap.layouts import Layout
from jobs.core.overlap.operations import Ref, refs
from jobs.core.overlap.rules.outcome import (
    ALONG,
    DIFFERENT,
    Combine,
    Outcome,
    Place,
    Tiling,
    View,
    Whole,
    positive,
)
from jobs.core.overlap.rules.shapes import along_one, besides, topk

BATCH_STATISTICS = "it takes statistics over the batch"


def layer_norm(of: View) -> Outcome:
    """(input, normalized_shape, ...) -> output, mean, rstd."""
    ref, place = of.tiled[0]
    if len(of.tiled) > 1 or place.dim >= len(of.shape(ref)) - len(of.argument(1)):
        return Whole("it normalises over the batch")
    return Tiling((place,) * len(of.operation.results), {ref.name: place})


def layer_norm_backward(of: View) -> Outcome:
    """(gradient, input, normalized_shape, mean, rstd, weight, bias, mask): weights' gradients add up."""
    gradient, source, mean, rstd = (of.argument(i) for i in (0, 1, 3, 4))
    return _rows(of, (gradient, source, mean, rstd), len(of.shape(source)) - len(of.argument(2)), _SUMS)


_SUMS: tuple[Place | Combine, ...] = (None, Combine(), Combine())


def _rows(of: View, members: tuple[Ref, ...], below: int, rest: tuple[Place | Combine, ...]) -> Outcome:
    """All members have the batch in one leading dimension; the first result too."""
    places = {place for _, place in of.tiled}
    if len(places) != 1:
        return Whole(DIFFERENT)
    place = places.pop()
    if place.dim >= below or not all(place.fits(of.shape(ref), of.batch) for ref in members):
        return Whole(DIFFERENT)
    if any(ref not in members for ref, _ in of.tiled):
        return Whole(DIFFERENT)
    results = (place, *rest[1:])[: len(of.operation.results)]
    return Tiling(results, {ref.name: place for ref in members})


def rms_norm(of: View) -> Outcome:
    """(input, normalized_shape, weight, eps) -> output, rstd."""
    return layer_norm(of)


def rms_norm_backward(of: View) -> Outcome:
    """(gradient, input, normalized_shape, rstd, weight, mask)."""
    members = (of.argument(0), of.argument(1), of.argument(3))
    return _rows(of, members, len(of.shape(members[1])) - len(of.argument(2)), (None, Combine()))


def group_norm(of: View) -> Outcome:
    """(input, weight, bias, N, C, HxW, groups, eps) -> output, mean, rstd; N is the batch."""
    ref, place = of.tiled[0]
    if len(of.tiled) > 1 or place != Layout(0):
        return Whole("it normalises over the batch")
    return Tiling((place,) * 3, {ref.name: place}, lambda part: of.with_arguments({3: part}))


def group_norm_backward(of: View) -> Outcome:
    """(gradient, input, mean, rstd, weight, N, ...)."""
    members = tuple(of.argument(i) for i in range(4))
    found = _rows(of, members, 1, _SUMS)
    if isinstance(found, Whole) or found.results[0] != Layout(0):
        return Whole(DIFFERENT)
    return Tiling(found.results, found.needs, lambda part: of.with_arguments({5: part}))


def batch_norm(of: View) -> Outcome:
    """(input, weight, bias, running mean, running variance, training, ...): free to tile in evaluation."""
    ref, place = of.tiled[0]
    training = "no_training" not in of.operation.target and of.argument(5)
    if training or place.dim == 1:
        return Whole(BATCH_STATISTICS, place)
    # Saved statistics are empty in evaluation, and shared.
    return Tiling((place, *(Combine("first"),) * (len(of.operation.results) - 1)), {ref.name: place})


def batch_norm_backward(of: View) -> Outcome:
    """(gradient, input, weight, running mean, running variance, saved..., training, ...)."""
    if of.argument(7):
        return Whole(BATCH_STATISTICS, of.tiled[0][1])
    return _rows(of, (of.argument(0), of.argument(1)), 1, _SUMS)


def embedding(of: View) -> Outcome:
    """(table, indices, ...): rows of a shared table."""
    indices = of.argument(1)
    place = of.places(indices)
    if place is None or of.places(of.argument(0)) is not None:
        return Whole(DIFFERENT)
    return Tiling((place,), {indices.name: place})


def embedding_backward(of: View) -> Outcome:
    """(gradient, indices, rows, padding, scale by frequency): tiles of the table's gradient add up."""
    if of.argument(4):
        return Whole("it counts how often an index occurs in the whole batch")
    members = (of.argument(0), of.argument(1))
    found = _rows(of, members, len(of.shape(members[1])), (None,))
    return found if isinstance(found, Whole) else Tiling((Combine(),), found.needs)


def attention(of: View) -> Outcome:
    """Batch x heads x tokens x size, queries, keys and values alike; a mask may lack the batch."""
    return _attention(of, dropout=of.argument(3, 0.0), members=3)


def attention_backward(of: View) -> Outcome:
    """(gradient, query, key, value, output, logsumexp, dropout, ...)."""
    return _attention(of, dropout=of.argument(6, 0.0), members=6)


def _attention(of: View, *, dropout: float, members: int) -> Outcome:
    if dropout:
        return Whole("it draws random numbers: drawn once for the whole batch, they stay the same")
    needs: dict[str, Layout] = {}
    for position, ref in enumerate(of.tensors):
        shape, place = of.shape(ref), of.places(ref)
        if position >= members and place is None and (len(shape) < 4 or shape[0] == 1):
            continue
        needed = place or Layout(0)
        if needed != Layout(0) or not needed.fits(shape, of.batch):
            return Whole(DIFFERENT)
        needs[ref.name] = needed
    return Tiling((Layout(0),) * len(of.operation.results), needs)


def convolution(of: View) -> Outcome:
    """(input, weight, bias, ...): the batch is the first dimension."""
    ref, place = of.tiled[0]
    if len(of.tiled) > 1 or place.dim != 0 or ref != of.argument(0):
        return Whole(DIFFERENT)
    return Tiling((place,), {ref.name: place})


def convolution_backward(of: View) -> Outcome:
    """(gradient, input, weight, ...) -> gradients of input, weight, bias."""
    return _rows(of, (of.argument(0), of.argument(1)), 1, _SUMS)


def samples(of: View) -> Outcome:
    """Layers that treat each sample of the first dimension by itself: pooling, resizing."""
    members = of.tensors
    return _rows(of, members, 1, (None, Layout(0), Layout(0)))


def nll_loss(of: View) -> Outcome:
    """(log-probabilities, targets, weight, reduction, ignored): 0 none, 2 sum; a mean is no sum of tiles."""
    members = (of.argument(0), of.argument(1))
    if of.argument(3) == 1:
        return Whole("it takes a mean over the targets that are not ignored")
    found = _rows(of, members, 1, (None, Combine()))
    if isinstance(found, Whole) or of.argument(3) == 0:
        return found
    return Tiling((Combine(), Combine()), found.needs)


def nll_loss_backward(of: View) -> Outcome:
    """(gradient, log-probabilities, targets, weight, reduction, ignored, total weight, which is shared)."""
    members: tuple[Ref, ...] = (of.argument(1), of.argument(2))
    if of.argument(4) == 0:
        members = (of.argument(0), *members)
    return _rows(of, members, 1, (None,))


def softmax_backward(of: View) -> Outcome:
    """(gradient, output, dim, dtype)."""
    found = besides(of, of.argument(2))
    if isinstance(found, Whole):
        return found
    place = found.results[0]
    assert isinstance(place, Layout)
    members = (of.argument(0), of.argument(1))
    return _rows(of, members, place.dim + 1, (None,))


def whole_random(of: View) -> Outcome:
    """Random numbers are drawn once for the whole batch, so that they are those of the program."""
    ref, place = of.tiled[0]
    keeps = place if of.shape(ref) == of.result_shape else None
    return Whole("it draws random numbers: drawn once for the whole batch, they stay the same", keeps)


def flip(of: View) -> Outcome:
    """Reverse the order along some dimensions."""
    ref, place = of.tiled[0]
    if place.dim in [positive(dim, len(of.result_shape)) for dim in of.argument(1)]:
        return Whole(f"it {ALONG}")
    return Tiling((place,), {ref.name: place})


def new_tensor(of: View) -> Outcome:
    """new_zeros and the like take only the type of their operand; of its own shape it is a tile."""
    names = {ref.name for ref in refs(of.operation.args)}
    ref, place = of.tiled[0]
    if names == {ref.name} and of.shape(ref) == of.result_shape:
        shape = of.result_shape
        return Tiling(
            (place,), {ref.name: place}, lambda part: of.with_arguments({1: list(place.shape(shape, part))})
        )
    return Whole(f"it {ALONG} or changes the shape")


NETWORKS: dict[str, Callable[[View], Outcome]] = {
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_layer_norm_backward.default": layer_norm_backward,
    "aten._fused_rms_norm.default": rms_norm,
    "aten._fused_rms_norm_backward.default": rms_norm_backward,
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_backward,
    "aten.native_batch_norm.default": batch_norm,
    "aten._native_batch_norm_legit_functional.default": batch_norm,
    "aten._native_batch_norm_legit_no_training.default": batch_norm,
    "aten.native_batch_norm_backward.default": batch_norm_backward,
    "aten.embedding.default": embedding,
    "aten.embedding_dense_backward.default": embedding_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": attention_backward,
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": convolution_backward,
    "aten.max_pool2d_with_indices.default": samples,
    "aten.max_pool2d_with_indices_backward.default": samples,
    "aten.avg_pool2d.default": samples,
    "aten.avg_pool2d_backward.default": samples,
    "aten._adaptive_avg_pool2d.default": samples,
    "aten._adaptive_avg_pool2d_backward.default": samples,
    "aten.nll_loss_forward.default": nll_loss,
    "aten.nll_loss_backward.default": nll_loss_backward,
    "aten._softmax.default": along_one,
    "aten._log_softmax.default": along_one,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten._log_softmax_backward_data.default": softmax_backward,
    "aten.sort.default": along_one,
    "aten.cumsum.default": along_one,
    "aten.flip.default": flip,
    "aten.topk.default": topk,
    "aten.new_zeros.default": new_tensor,
    "aten.new_ones.default": new_tensor,
    "aten.new_empty.default": new_tensor,
}
