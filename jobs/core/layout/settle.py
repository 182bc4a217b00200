"""Give the groups of a plan to its stages so that as little state as possible moves.

Groups of the same type are interchangeable in time, so only who holds what today decides among them.
"""

from collections.abc import Sequence

import numpy as np

from jobs.core.layout.instance import Instance, Layout, Replica, Stage

MOST_COMPARED = 400  # groups of one type up to which every group is compared with every place

Span = tuple[int, int]  # first layer, last layer + 1
Place = tuple[int, int]  # replica, stage


def settle(instance: Instance, layout: Layout) -> Layout:
    """Return an equally fast layout in which groups stay near their present layers, replicas in place."""
    current = instance.current
    if current is None:
        return layout
    held = _held_spans(current)
    slots: dict[tuple[float, float, int], list[Place]] = {}
    spans: dict[Place, Span] = {}
    for r, replica in enumerate(layout.replicas):
        first = 0
        for s, stage in enumerate(replica.stages):
            spans[r, s] = (first, first + stage.layers)
            first += stage.layers
            slots.setdefault(_type(instance, stage), []).append((r, s))
    groups = {
        (r, s): stage.devices
        for r, replica in enumerate(layout.replicas)
        for s, stage in enumerate(replica.stages)
    }
    placed: dict[Place, tuple[str, ...]] = {}
    for places in slots.values():
        for owner, place in zip(places, _assign(places, groups, spans, held), strict=True):
            placed[place] = groups[owner]
    # Members in the order they have today, so that every shard stays on its device.
    today = {
        frozenset(stage.devices): stage.devices for replica in current.replicas for stage in replica.stages
    }
    replicas = [
        Replica(
            replica.microbatches,
            tuple(
                Stage(today.get(frozenset(placed[r, s]), placed[r, s]), stage.layers)
                for s, stage in enumerate(replica.stages)
            ),
        )
        for r, replica in enumerate(layout.replicas)
    ]
    return Layout(tuple(_in_place(replicas, current)))


def _type(instance: Instance, stage: Stage) -> tuple[float, float, int]:
    devices = [instance.device(name) for name in stage.devices]
    return min(d.speed for d in devices), min(d.memory for d in devices), len(devices)


def _held_spans(layout: Layout) -> dict[str, tuple[int, int, float]]:
    """Layers of every device (first, last + 1) and the part of each it holds."""
    held = {}
    for replica in layout.replicas:
        first = 0
        for stage in replica.stages:
            for name in stage.devices:
                held[name] = (first, first + stage.layers, 1 / len(stage.devices))
            first += stage.layers
    return held


def _keeps(
    groups: Sequence[Sequence[str]], spans: Sequence[Span], held: dict[str, tuple[int, int, float]]
) -> np.ndarray:
    """State (in layers) that each group would keep in each place; shape (groups, places)."""
    first, last = np.array(spans).T
    keeps = np.zeros((len(groups), len(spans)))
    for member in range(len(groups[0])):
        today = np.array([held.get(devices[member], (0, 0, 0.0)) for devices in groups])
        shared = np.minimum(today[:, 1:2], last) - np.maximum(today[:, 0:1], first)
        keeps += np.maximum(shared, 0) * np.minimum(today[:, 2:], 1 / len(groups[0]))
    return keeps


def _assign(
    places: list[Place],
    groups: dict[Place, tuple[str, ...]],
    spans: dict[Place, Span],
    held: dict[str, tuple[int, int, float]],
) -> list[Place]:
    """The place each group gets, in the order of the groups; the pairs that keep most first."""
    if len(places) > MOST_COMPARED:
        # Groups in the order of the layers they hold, places in the order of the layers they need.
        owners = sorted(range(len(places)), key=lambda i: (_first_held(groups[places[i]], held), i))
        chosen = list(places)
        for owner, place in zip(owners, sorted(places, key=lambda place: (spans[place], place)), strict=True):
            chosen[owner] = place
        return chosen
    keeps = _keeps([groups[place] for place in places], [spans[place] for place in places], held)
    # The tiny preference for staying put makes ties deterministic.
    keeps += 1e-9 * np.eye(len(places))
    found: dict[int, int] = {}
    taken: set[int] = set()
    for flat in np.argsort(-keeps, axis=None, kind="stable"):
        owner, column = divmod(int(flat), len(places))
        if owner not in found and column not in taken:
            found[owner] = column
            taken.add(column)
    return [places[found[owner]] for owner in range(len(places))]


def _first_held(devices: Sequence[str], held: dict[str, tuple[int, int, float]]) -> tuple[int, int]:
    return min((held[name][:2] for name in devices if name in held), default=(1 << 30, 0))


def _in_place(replicas: list[Replica], current: Layout) -> list[Replica]:
    """Replicas in the order of the current ones they share most devices with."""
    left = list(range(len(replicas)))
    devices = [{name for stage in replica.stages for name in stage.devices} for replica in replicas]
    ordered = []
    for before in current.replicas:
        if left:
            names = {name for stage in before.stages for name in stage.devices}
            best = max(left, key=lambda index: (len(devices[index] & names), -index))
            left.remove(best)
            ordered.append(replicas[best])
    return ordered + [replicas[index] for index in left]
