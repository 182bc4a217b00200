"""ZB-V: two model chunks per rank laid out as a V (Qi et al. 2024, "Pipeline Parallelism with Controllable
Memory" and "Zero Bubble Pipeline Parallelism", appendix).

Rank r of p holds virtual stages r and 2p-1-r. With F = B = W and at least 2p-1 micro-batches no rank waits
between its first and its last chunk; at most 2p half-size activations are held, the memory of 1F1B.
"""

from jobs.core.pipeline.instructions import Chunk, Kind, Placement, Schedule

F, B, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT
DOWN, UP = 0, 1  # the two arms of the V


class _Rank:
    """The growing list of one rank; each request takes the next micro-batch, if one is left."""

    def __init__(self, microbatches: int) -> None:
        self.microbatches = microbatches
        self.order: list[Chunk] = []
        self.done = {(kind, arm): 0 for kind in Kind for arm in (DOWN, UP)}

    def add(self, kind: Kind, arm: int) -> None:
        """Append the next chunk of a kind and arm, if there is one."""
        index = self.done[kind, arm]
        limit = self.done[B, arm] if kind is W else self.microbatches
        if index < limit:
            self.order.append(Chunk(kind, index, arm))
            self.done[kind, arm] = index + 1

    def owed(self, arm: int) -> int:
        """Weight gradients of an arm that could run now."""
        return self.done[B, arm] - self.done[W, arm]

    def add_weight(self) -> None:
        """Append a weight gradient of the arm that owes more."""
        self.add(W, UP if self.owed(UP) >= self.owed(DOWN) else DOWN)

    def left(self, kind: Kind) -> bool:
        """Whether either arm still has chunks of a kind to run."""
        return min(self.done[kind, DOWN], self.done[kind, UP]) < self.microbatches


def zb_v(stages: int, microbatches: int) -> Schedule:
    """The ZB-V schedule; any number of micro-batches works, fewer than 2 * stages - 1 leave bubbles."""
    ranks = tuple(_rank_order(rank, stages, microbatches) for rank in range(stages))
    return Schedule("zb-v", ranks, microbatches, 2, Placement.VEE, splits_backward=True)


def _rank_order(rank: int, stages: int, microbatches: int) -> tuple[Chunk, ...]:
    work = _Rank(microbatches)
    _fill(work, rank, stages)
    while work.left(F):
        for kind, arm in ((F, DOWN), (B, DOWN), (W, DOWN), (F, UP), (B, UP), (W, UP)):
            work.add(kind, arm)
    _drain(work, rank, stages)
    return tuple(work.order)


def _fill(work: _Rank, rank: int, stages: int) -> None:
    for _ in range(2 * (stages - rank) - 1):
        work.add(F, DOWN)
    for _ in range(rank):
        work.add(F, UP)
        work.add(F, DOWN)
    for _ in range(stages - rank):
        for kind in (F, B, W):
            work.add(kind, UP)


def _drain(work: _Rank, rank: int, stages: int) -> None:
    # Gradients other ranks wait for go first; the weight gradients left behind fill the gaps.
    for _ in range(rank):
        work.add(B, DOWN)
        work.add(B, UP)
    for _ in range(stages - rank):
        work.add(B, DOWN)
        work.add_weight()
    while work.left(B):
        work.add(B, DOWN)
        work.add(B, UP)
    while work.owed(UP) or work.owed(DOWN):
        work.add_weight()
