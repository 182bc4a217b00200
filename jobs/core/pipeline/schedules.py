"""GPipe, 1F1B, interleaved 1F1B and ZB-H1 as instruction lists.

Sources: GPipe (Huang et al. 2019); 1F1B and its interleaved form (Narayanan et al. 2021, section 2.2);
ZB-H1 (Qi et al. 2024, section 3). ZB-V has a module of its own.
"""

from collections.abc import Callable

from jobs.core.errors import ImpossibleSchedule
from jobs.core.pipeline.instructions import Chunk, Kind, Schedule
from jobs.core.pipeline.zero_bubble_v import zb_v

F, B, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards."""
    rank = [Chunk(F, j) for j in range(microbatches)] + [Chunk(B, j) for j in range(microbatches)]
    return Schedule("gpipe", (tuple(rank),) * stages, microbatches)


def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """Stage i warms up with min(stages - i - 1, microbatches) forwards, then alternates."""
    ranks = tuple(_one_f_one_b_rank(stages - i - 1, microbatches) for i in range(stages))
    return Schedule("1f1b", ranks, microbatches)


def _one_f_one_b_rank(warmup: int, microbatches: int) -> tuple[Chunk, ...]:
    warmup = min(warmup, microbatches)
    order = [Chunk(F, j) for j in range(warmup)]
    for j in range(microbatches - warmup):
        order += [Chunk(F, j + warmup), Chunk(B, j)]
    order += [Chunk(B, j) for j in range(microbatches - warmup, microbatches)]
    return tuple(order)


def interleaved(stages: int, microbatches: int, model_chunks: int = 2) -> Schedule:
    """1F1B over `model_chunks` chunks per rank; micro-batches pass in groups of `stages`."""
    if model_chunks < 1:
        raise ImpossibleSchedule(f"model_chunks is {model_chunks}: it must be at least 1")
    if microbatches % stages:
        raise ImpossibleSchedule(
            f"microbatches is {microbatches}: interleaving needs a multiple of the {stages} stages"
        )
    ranks = tuple(_interleaved_rank(rank, stages, microbatches, model_chunks) for rank in range(stages))
    return Schedule("interleaved", ranks, microbatches, model_chunks)


def _interleaved_rank(rank: int, stages: int, microbatches: int, model_chunks: int) -> tuple[Chunk, ...]:
    total = microbatches * model_chunks

    def at(index: int) -> tuple[int, int]:
        group, within = divmod(index, stages * model_chunks)
        return group * stages + within % stages, within // stages

    forwards = [Chunk(F, *at(k)) for k in range(total)]
    backwards = [Chunk(B, j, model_chunks - 1 - c) for j, c in map(at, range(total))]
    if model_chunks == 1:
        warmup = min(stages - rank - 1, total)
    else:
        warmup = min((stages - rank - 1) * 2 + (model_chunks - 1) * stages, total)
    order = forwards[:warmup]
    for k in range(total - warmup):
        order += [forwards[k + warmup], backwards[k]]
    return tuple(order + backwards[total - warmup :])


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """1F1B with the backward split: stage i runs the weight gradients i micro-batches late.

    Peak activation memory is that of 1F1B, stages - i micro-batches in flight plus i awaiting W.
    """
    ranks = []
    for stage in range(stages):
        order: list[Chunk] = []
        for chunk in _one_f_one_b_rank(stages - stage - 1, microbatches):
            order.append(chunk)
            if chunk.kind is B and chunk.microbatch >= stage:
                order.append(Chunk(W, chunk.microbatch - stage))
        order += [Chunk(W, j) for j in range(max(0, microbatches - stage), microbatches)]
        ranks.append(tuple(order))
    return Schedule("zb-h1", tuple(ranks), microbatches, splits_backward=True)


SCHEDULES: dict[str, Callable[[int, int], Schedule]] = {
    "1f1b": one_f_one_b,
    "gpipe": gpipe,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "zb-v": zb_v,
}


def build_schedule(name: str, stages: int, microbatches: int, model_chunks: int = 2) -> Schedule:
    """Build a schedule by name; `model_chunks` matters to `interleaved` alone.

    Raises ImpossibleSchedule for an unknown name, for less than one stage or micro-batch, and where the
    schedule's own rule does not hold.
    """
    if name not in SCHEDULES:
        raise ImpossibleSchedule(f"schedule {name!r} is none of {', '.join(SCHEDULES)}")
    if stages < 1 or microbatches < 1:
        raise ImpossibleSchedule("a schedule needs at least one stage and one micro-batch")
    if name == "interleaved":
        return interleaved(stages, microbatches, model_chunks)
    return SCHEDULES[name](stages, microbatches)
