"""What the nodes of a cluster can offer: types of groups, and what those are worth at given prices.

Time does not depend on where a group lies, so nodes with equal devices are one kind. Where the faster device
of a node never holds less memory, only runs of the devices sorted by speed need be looked at: exchanging
members between groups of given sizes can only slow one of them down.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jobs.core.layout.grouping import NodeClasses, TooLarge, nodes_of
from jobs.core.layout.work import GroupType, Work

Floats = NDArray[np.float64]
Runs = list[tuple[int, int, int]]  # (first device, past the last, number of the type)


class Supply:
    """Group types of a cluster, numbered, and the runs of every kind of node.

    Prices are one number per type. Raises TooLarge where runs do not suffice.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.nodes = _alike(work)
        self.kinds = [nodes[0] for nodes in self.nodes]
        self.numbers = [len(nodes) for nodes in self.nodes]
        groups = [
            [
                (start, start + size, work.group_type(node.devices[start : start + size]))
                for start, size in runs
            ]
            for node, runs in ((node, _runs(node, work.instance.legal_sizes)) for node in self.kinds)
        ]
        types = {kind for rows in groups for _, _, kind in rows if work.useful(kind)}
        self.types: list[GroupType] = sorted(types)
        number = {kind: index for index, kind in enumerate(self.types)}
        self.runs: list[Runs] = [
            [(start, end, number[kind]) for start, end, kind in rows if kind in number] for rows in groups
        ]
        self.rates = np.array([kind.rate for kind in self.types])
        self.capacities = np.array([kind.capacity for kind in self.types])
        # [g, h]: type h is as good as type g in both respects.
        self.at_least = (self.rates >= self.rates[:, None]) & (self.capacities >= self.capacities[:, None])

    def consistent(self, prices: Floats) -> Floats:
        """The prices with none above that of a better type: nobody would pay it."""
        return np.asarray(np.where(self.at_least, prices[None, :], np.inf).min(axis=1))

    def natural(self, bend: float = 0.0) -> Floats:
        """Devices that a group of a type is worth: those of a healthy group of that rate.

        With `bend` those slower than the second largest healthy group are worth less, the more the slower.
        """
        efficiency = self.work.instance.efficiency
        top = max(device.speed for device in self.work.instance.living)
        pairs = sorted((k * efficiency[k] * top, float(k)) for k in self.work.instance.legal_sizes)
        rates, sizes = zip(*pairs, strict=True)
        prices = np.interp(self.rates, (0.0, *rates), (0.0, *sizes))
        bent = self.consistent(prices * np.minimum(1.0, self.rates / rates[max(0, len(rates) - 2)]) ** bend)
        return self.lifted(bent)

    def worth(self, prices: Floats) -> float:
        """The most that all nodes together can offer at consistent prices."""
        return sum(self.best_cut(k, prices)[0] * count for k, count in enumerate(self.numbers))

    def lifted(self, prices: Floats) -> Floats:
        """The prices, each raised as far as no node can offer more for that."""
        prices = prices.copy()
        for number in np.lexsort((self.capacities, self.rates))[::-1]:
            spare = [
                (self._best(kind, prices, 0)[-1] - most) / self._copies(kind, int(number))
                for kind in range(len(self.kinds))
                if (most := self._best_with(kind, prices, int(number))) is not None
            ]
            better = self.at_least[number].copy()
            better[number] = False
            ceiling = float(prices[better].min()) if better.any() else np.inf
            prices[number] = max(float(prices[number]), min(float(prices[number]) + min(spare), ceiling))
        return self.consistent(prices)

    def _best(self, kind: int, prices: Floats, start: int) -> list[float]:
        """The most that the devices from `start` on offer, by where they end."""
        devices = len(self.kinds[kind].devices)
        best = [0.0] * (devices + 1)
        for end in range(start + 1, devices + 1):
            best[end] = max(
                [best[end - 1]]
                + [best[a] + float(prices[g]) for a, b, g in self.runs[kind] if b == end and a >= start]
            )
        return best

    def _best_with(self, kind: int, prices: Floats, number: int) -> float | None:
        """The most a node offers that forms a group of a type; None if it cannot."""
        front = self._best(kind, prices, 0)
        found = [
            front[start] + float(prices[number]) + self._best(kind, prices, end)[-1]
            for start, end, other in self.runs[kind]
            if other == number
        ]
        return max(found, default=None)

    def _copies(self, kind: int, number: int) -> int:
        """How many groups of a type a node can form at once."""
        copies = reached = 0
        for start, end, other in sorted(self.runs[kind], key=lambda run: run[1]):
            if other == number and start >= reached:
                copies, reached = copies + 1, end
        return copies

    def best_cut(self, kind: int, prices: Floats) -> tuple[float, Floats]:
        """The most a node of a kind can offer, and how many groups of each type it forms for that."""
        devices = len(self.kinds[kind].devices)
        best = [0.0] * (devices + 1)
        taken: list[tuple[int, int] | None] = [None] * (devices + 1)
        ending: dict[int, list[tuple[int, int]]] = {}
        for start, end, number in self.runs[kind]:
            ending.setdefault(end, []).append((start, number))
        for end in range(1, devices + 1):
            best[end] = best[end - 1]
            for start, number in ending.get(end, ()):
                offered = best[start] + float(prices[number])
                if offered > best[end]:
                    best[end], taken[end] = offered, (start, number)
        counts, at = np.zeros(len(self.types)), devices
        while at > 0:
            row = taken[at]
            if row is None:
                at -= 1
            else:
                at = row[0]
                counts[row[1]] += 1
        return best[devices], counts


def _alike(work: Work) -> list[list[NodeClasses]]:
    """The nodes by kind."""
    found: dict[tuple[tuple[float, float], ...], list[NodeClasses]] = {}
    total = float(work.instance.memory_sums[-1])
    for node in nodes_of(work.instance):
        memories = [min(device.memory, total) for device in node.devices]
        if any(a < b for a, b in zip(memories, memories[1:], strict=False)):
            raise TooLarge
        found.setdefault(tuple((device.speed, device.memory) for device in node.devices), []).append(node)
    return list(found.values())


def _runs(node: NodeClasses, sizes: Sequence[int]) -> list[tuple[int, int]]:
    devices = len(node.devices)
    return [(start, size) for size in sizes for start in range(devices - size + 1)]
