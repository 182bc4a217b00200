"""The model of one instance in the form the searches need: prefix sums, and groups reduced to two numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jobs.core.layout.costs import MEMORY_REL, group_capacity, group_rate
from jobs.core.layout.instance import Device, Instance


class GroupType(NamedTuple):
    """All that matters of a tensor-parallel group: its rate (healthy devices) and what it can hold.

    `capacity` is in the unit of `Work.memory`: layers where all layers are alike, else memory.
    """

    rate: float
    capacity: float


class Work:
    """Prefix sums over the layers (`forward[i]` is the first i layers) and the way groups are valued.

    Groups that can hold the whole model, or equally many equal layers, are the same type whatever their
    memory: fewer types, smaller searches.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.layers = len(instance.layers)
        self.transfer_s = instance.transfer_s
        self.microbatches = instance.microbatches
        self.forward = np.array(instance.forward_sums)
        self.backward = np.array(instance.backward_sums)
        self.both = self.forward + self.backward
        self.total = float(self.both[-1])
        self.uniform = instance.uniform
        self.least_both = float(np.diff(self.both).min())
        # The smallest share of a layer's time that is backward; 0 where a layer costs nothing.
        shares = [row.backward / max(row.forward + row.backward, 1e-300) for row in instance.layers]
        self.least_backward_part = min(shares)
        self._layer_memory = instance.layers[0].memory
        if self.uniform:
            self.memory = np.arange(self.layers + 1, dtype=float)
        else:
            self.memory = np.array(instance.memory_sums)
        self.smallest_memory = float(np.diff(self.memory).min())

    def group_type(self, devices: Sequence[Device]) -> GroupType:
        """Reduce a group to its type."""
        capacity = group_capacity(devices) * (1 + MEMORY_REL)
        if self.uniform:
            most = self.layers
            if self._layer_memory > 0:
                most = min(most, int(min(capacity / self._layer_memory, float(self.layers))))
            return GroupType(group_rate(self.instance, devices), float(most))
        return GroupType(group_rate(self.instance, devices), min(capacity, float(self.memory[-1])))

    def useful(self, kind: GroupType) -> bool:
        """Whether a group can hold even one layer."""
        return kind.capacity >= self.smallest_memory

    def enough_memory(self, kinds: Sequence[GroupType]) -> bool:
        """Whether groups together could hold the model (necessary, and sufficient where layers are alike)."""
        return sum(kind.capacity for kind in kinds) >= float(self.memory[-1])
