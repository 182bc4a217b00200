"""How many micro-batches each replica runs, so that the last one finishes as early as possible."""

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush


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
    count, pace = float(microbatches), 0.0
    time = ordered[-1][0]
    # A replica whose first micro-batch alone takes longer runs only that.
    for index, (first, each) in enumerate(ordered):
        if each <= 0:
            return time
        count += first / each - 1
        pace += 1 / each
        others = len(ordered) - 1 - index
        time = (count - others) / pace
        if others == 0 or time <= ordered[index + 1][0]:
            return max(time, ordered[-1][0])
    return time


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
