"""An oracle for the planner: every layout of a small instance, straight from the definition."""

import math
from itertools import combinations

import pytest

from jobs.core.pipeline import one_f_one_b_makespan


def compositions(total, parts):
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def every_group(instance):
    """(mask, rate, capacity) of every set of living devices that may be a group."""
    living = [device for device in instance.devices if device.speed > 0]
    groups = []
    for size in instance.sizes:
        if instance.heads is not None and instance.heads % size:
            continue
        for chosen in combinations(range(len(living)), size):
            members = [living[i] for i in chosen]
            if len({device.node for device in members}) == 1:
                rate = size * instance.efficiency[size] * min(device.speed for device in members)
                room = size * min(device.memory for device in members)
                groups.append((sum(1 << i for i in chosen), rate, room))
    return groups


class Exhaustive:
    """The optimal iteration time of one instance."""

    def __init__(self, instance):
        self.instance = instance
        self.sequences = {}
        self.replicas = {}  # devices used -> best makespan by micro-batches
        self.extend(0, (), every_group(instance))

    def extend(self, mask, sequence, groups):
        if sequence:
            known = self.replicas.setdefault(mask, [math.inf] * (self.instance.microbatches + 1))
            for m, time in enumerate(self.best_splits(sequence)):
                known[m] = min(known[m], time)
        if len(sequence) < len(self.instance.layers):
            for group, rate, room in groups:
                if not group & mask:
                    self.extend(mask | group, (*sequence, (rate, room)), groups)

    def best_splits(self, sequence):
        if sequence not in self.sequences:
            best = [math.inf] * (self.instance.microbatches + 1)
            for split in compositions(len(self.instance.layers), len(sequence)):
                forward_s, backward_s, first = [], [], 0
                for (rate, room), count in zip(sequence, split, strict=True):
                    owned = self.instance.layers[first : first + count]
                    first += count
                    if sum(layer.memory for layer in owned) > room * (1 + 1e-9):
                        break
                    forward_s.append(sum(layer.forward for layer in owned) / rate)
                    backward_s.append(sum(layer.backward for layer in owned) / rate)
                else:
                    for m in range(1, len(best)):
                        time = one_f_one_b_makespan(forward_s, backward_s, m, self.instance.transfer_s)
                        best[m] = min(best[m], time)
            self.sequences[sequence] = best
        return self.sequences[sequence]

    def optimum(self):
        asked, most = self.instance.replicas, len(self.instance.devices)
        counts = [asked] if asked else range(1, min(most, self.instance.microbatches) + 1)
        return min((self.with_replicas(count) for count in counts), default=math.inf)

    def with_replicas(self, count):
        partial = {(0, 0): 0.0}  # (devices used, micro-batches dealt) -> time
        for _ in range(count):
            grown = {}
            for (used, dealt), time in partial.items():
                for mask, best in self.replicas.items():
                    if not mask & used:
                        for m in range(1, self.instance.microbatches - dealt + 1):
                            key, new = (used | mask, dealt + m), max(time, best[m])
                            if new < grown.get(key, math.inf):
                                grown[key] = new
            partial = grown
        whole = self.instance.microbatches
        return min((time for (_, dealt), time in partial.items() if dealt == whole), default=math.inf)


@pytest.fixture(scope="session")
def optimum():
    """The optimal iteration time of an instance by exhaustive search; infinite where there is no layout."""
    return lambda instance: Exhaustive(instance).optimum()
