"""Whole devices on numbered nodes, found by their free count.

One integer per free count is the set of nodes that have it (bit i = node i), so that the lowest
numbered node with the fewest free devices is a few machine words away on a cluster of any size.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from cluster.core.errors import CapacityError

Slots = list[tuple[int, int]]  # (node, devices)


def lowest_bit(mask: int) -> int:
    """Return the number of the lowest node in a set that is not empty."""
    return (mask & -mask).bit_length() - 1


def _sets_by_value(values: Sequence[int]) -> dict[int, int]:
    """Return for each value the set of the nodes that have it."""
    members: dict[int, list[int]] = {}
    for node, value in enumerate(values):
        members.setdefault(value, []).append(node)
    sets = {}
    for value, nodes in members.items():
        raw = bytearray((len(values) >> 3) + 1)
        for node in nodes:
            raw[node >> 3] |= 1 << (node & 7)
        sets[value] = int.from_bytes(raw, "little")
    return sets


class NodePool:
    """Free whole devices per node.

    Attributes:
        sizes: devices of each node.
        free: free devices of each node.
        total_free: their sum.
        largest: the largest node.
        empty: set of nodes with all their devices free, nodes without devices left out.
    """

    __slots__ = (
        "_by_free",
        "_by_size",
        "_levels",
        "empty",
        "free",
        "largest",
        "sizes",
        "total",
        "total_free",
    )

    def __init__(self, sizes: Sequence[int], free: Sequence[int] | None = None) -> None:
        self.sizes = list(sizes)
        self.free = list(sizes) if free is None else list(free)
        self.total, self.total_free = sum(sizes), sum(self.free)
        self.largest = max(sizes, default=0)
        self._by_size = _sets_by_value(self.sizes)
        self._by_free = self._by_size.copy() if free is None else _sets_by_value(self.free)
        self._levels = sorted(self._by_free)
        self.empty = 0
        for size, nodes in self._by_size.items():
            if size:
                self.empty |= nodes & self._by_free.get(size, 0)

    def copy(self) -> "NodePool":
        """Return an independent pool in the same state."""
        twin = object.__new__(NodePool)
        twin.sizes, twin.largest, twin.total = self.sizes, self.largest, self.total
        twin.free, twin.total_free, twin.empty = self.free.copy(), self.total_free, self.empty
        twin._by_free, twin._levels, twin._by_size = self._by_free.copy(), self._levels.copy(), self._by_size
        return twin

    def best_fit(self, devices: int, allowed: int = -1) -> int:
        """Return the node with the fewest free devices that has `devices`, the lowest number among equals.

        Returns:
            The node, or -1 where none fits. `allowed` is a set of nodes, all by default.
        """
        levels = self._levels
        for position in range(bisect_left(levels, devices), len(levels)):
            mask = self._by_free[levels[position]] & allowed
            if mask:
                return lowest_bit(mask)
        return -1

    def roomiest(self, allowed: int = -1) -> int:
        """Return the lowest numbered node with the most free devices, -1 where none is free."""
        for level in reversed(self._levels):
            mask = self._by_free[level] & allowed
            if level and mask:
                return lowest_bit(mask)
        return -1

    def at_least(self, devices: int) -> int:
        """Return the set of nodes with that many free devices."""
        found = 0
        for level in self._levels[bisect_left(self._levels, devices) :]:
            found |= self._by_free[level]
        return found

    def free_in(self, allowed: int) -> int:
        """Return the free devices of a set of nodes."""
        return sum(level * (nodes & allowed).bit_count() for level, nodes in self._by_free.items())

    def could_hold(self, devices: int, allowed: int = -1) -> bool:
        """Whether an allowed node is large enough when it is empty."""
        return any(mask & allowed for size, mask in self._by_size.items() if size >= devices)

    def take(self, node: int, devices: int) -> None:
        """Occupy devices of a node; CapacityError where it has not so many."""
        free = self.free[node]
        if not 0 < devices <= free:
            raise CapacityError(f"node {node} has {free} free devices, {devices} were to be taken")
        if free == self.sizes[node]:
            self.empty &= ~(1 << node)
        self._move(node, free, free - devices)
        self.total_free -= devices

    def give(self, node: int, devices: int) -> None:
        """Give devices back to a node; CapacityError where that exceeds its size."""
        free = self.free[node] + devices
        if devices <= 0 or free > self.sizes[node]:
            raise CapacityError(f"node {node} of {self.sizes[node]} devices would have {free} free ones")
        if free == self.sizes[node]:
            self.empty |= 1 << node
        self._move(node, self.free[node], free)
        self.total_free += devices

    def take_all(self, slots: Slots) -> None:
        """Occupy a placement."""
        for node, devices in slots:
            self.take(node, devices)

    def give_all(self, slots: Slots) -> None:
        """Give a placement back."""
        for node, devices in slots:
            self.give(node, devices)

    def _move(self, node: int, old: int, new: int) -> None:
        bit = 1 << node
        by_free = self._by_free
        left = by_free[old] ^ bit
        if left:
            by_free[old] = left
        else:
            del by_free[old]
            del self._levels[bisect_left(self._levels, old)]
        if new in by_free:
            by_free[new] |= bit
        else:
            by_free[new] = bit
            insort(self._levels, new)
        self.free[node] = new
