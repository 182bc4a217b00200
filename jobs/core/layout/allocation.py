"""How many micro-batches each replica runs, so that the last one finishes as early as possible."""

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf


def share(lines: Sequence[tuple[float, float]], microbatches: int) -> list[int]:
    """Deal micro-batches to replicas that take `first` for one and `each` for every further one.

    Each replica gets at least one; the next always goes to the replica that would finish first with it.
    """
    spare = microbatches - len(lines)
    # Leap to where all replicas finish about together, then deal the rest one by one.
    low, high = 0.0, max(first for first, _ in lines) + microbatches * max(each for _, each in lines)
    alike = Counter(lines)
    for _ in range(60):
        level = (low + high) / 2
        total = sum(_within(line, level) * number for line, number in alike.items())
        low, high = (level, high) if total <= spare else (low, level)
    counts = [1 + _within(line, low) for line in lines]
    heap = [(lines[index][0] + count * lines[index][1], index) for index, count in enumerate(counts)]
    heapify(heap)
    for _ in range(microbatches - sum(counts)):
        time, index = heappop(heap)
        counts[index] += 1
        heappush(heap, (time + lines[index][1], index))
    return counts


def level(lines: Sequence[tuple[float, float]], microbatches: int) -> float:
    """When all replicas would finish together if micro-batches could be divided; at least one each."""
    ordered = sorted(lines)
    last = ordered[-1][0]
    # Water filled in from the lowest: beyond its first micro-batch each replica takes 1 / each in a second.
    spare, pace = float(microbatches - len(ordered)), 0.0
    for (first, each), (following, _) in pairwise([*ordered, (inf, 0.0)]):
        if each <= 0:
            return last
        pace += 1 / each
        taken = pace * (following - first)
        if taken >= spare:
            return max(first + spare / pace, last)
        spare -= taken
    return last


def _within(line: tuple[float, float], level: float) -> int:
    first, each = line
    if level <= first or each <= 0:
        return 0
    return int((level - first) / each)


def level_out(counts: list[int], time: Callable[[int, int], float]) -> tuple[list[int], float]:
    """Move single micro-batches off the slowest replica until that helps no more; returns counts and time.

    `time(replica, count)` must not fall as count grows; then the answer is optimal: with fewer on the
    slowest, some other replica would have more than it can finish in that time.
    """
    counts = list(counts)
    ending = [time(index, count) for index, count in enumerate(counts)]
    heap = [(time(index, count + 1), index) for index, count in enumerate(counts)]
    heapify(heap)
    while True:
        slowest = max(range(len(counts)), key=lambda index: (ending[index], index))
        following, taker = heap[0]
        if taker == slowest or counts[slowest] == 1 or following >= ending[slowest] * (1 - 1e-12):
            return counts, ending[slowest]
        heappop(heap)
        counts[taker] += 1
        ending[taker] = following
        heappush(heap, (time(taker, counts[taker] + 1), taker))
        counts[slowest] -= 1
        ending[slowest] = time(slowest, counts[slowest])
        # The giver's entry is now too high by one micro-batch; replace it.
        heap = [(time(slowest, counts[slowest] + 1), i) if i == slowest else (t, i) for t, i in heap]
        heapify(heap)
