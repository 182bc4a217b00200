"""Which nodes a gang of whole devices takes: consolidated, or relaxed where that fails.

Both take the devices from the pool when they succeed and leave it untouched when they do not.
"""

from collections.abc import Callable

from cluster.core.placement.pool import NodePool, Slots, lowest_bit

PlaceRule = Callable[[NodePool, int, int], Slots | None]


def place_consolidated(pool: NodePool, devices: int, allowed: int = -1) -> Slots | None:
    """Place a gang on as few nodes as it can have, or not at all.

    A gang that fits one node takes the node with the fewest free devices that still fits, the lowest number
    among equals; a larger one takes whole empty nodes, lowest numbers, and the rest by the first rule
    (Hydro and Helios simulators, "consolidated").
    """
    if devices > pool.total_free:
        return None
    if devices <= pool.largest:
        node = pool.best_fit(devices, allowed)
        if node >= 0:
            pool.take(node, devices)
            return [(node, devices)]
        if pool.could_hold(devices, allowed):
            return None
    return _place_across(pool, devices, allowed)


def _place_across(pool: NodePool, devices: int, allowed: int) -> Slots | None:
    """Take whole empty nodes until the rest fits one node."""
    slots: Slots = []
    rest = devices
    empty = pool.empty & allowed
    while rest:
        node = pool.best_fit(rest, allowed) if rest <= pool.largest else -1
        if node >= 0:
            pool.take(node, rest)
            slots.append((node, rest))
            return slots
        if not empty:
            pool.give_all(slots)
            return None
        node = lowest_bit(empty)
        empty &= empty - 1
        taken = pool.free[node]
        pool.take(node, taken)
        slots.append((node, taken))
        rest -= taken
    return slots


def place_relaxed(pool: NodePool, devices: int, allowed: int = -1) -> Slots | None:
    """Place a gang consolidated where that works now, otherwise over the nodes with the most free devices."""
    slots = place_consolidated(pool, devices, allowed)
    if slots is not None:
        return slots
    slots, rest = [], devices
    while rest:
        node = pool.roomiest(allowed)
        if node < 0:
            pool.give_all(slots)
            return None
        taken = min(rest, pool.free[node])
        pool.take(node, taken)
        slots.append((node, taken))
        rest -= taken
    return slots


PLACEMENTS: dict[str, PlaceRule] = {"consolidated": place_consolidated, "relaxed": place_relaxed}
