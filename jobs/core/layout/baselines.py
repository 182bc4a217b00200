"""What other systems would do with the current layout, in the same model, for comparison.

* no action;
* micro-batches only, as Greyhound's first step (Wu et al. 2025);
* layers only, as Adaptra and Malleus' lower level do;
* exclusion then rebalancing, ResiHP's staged rule (Ma et al. 2026): in each damaged group the subgroup with
  the largest k * min speed, then layers, then micro-batches;
* dropping replicas, as torchft and Oobleck: whole replicas leave, the others share the micro-batches;
* rerouting, as ReCycle (Gandhi et al. 2024): micro-batches of a dead stage run on the same stage of others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobs.core.layout.costs import iteration_time, replica_times, uses_dead_device
from jobs.core.layout.fixed import FixedOrder
from jobs.core.layout.instance import Instance, Layout, Replica, Stage
from jobs.core.layout.rerouting import rerouted_time


@dataclass(frozen=True, slots=True)
class Baseline:
    """One alternative: its time (None if it cannot run, and why), and the layout where it is one."""

    name: str
    time: float | None
    layout: Layout | None
    obstacle: str = ""


def baselines(instance: Instance, fixed: FixedOrder) -> Iterator[Baseline]:
    """Every baseline of an instance with a current layout, quick ones first; none without one."""
    current = instance.current
    if current is None:
        return
    dead = uses_dead_device(instance, current)
    makers: list[tuple[str, Callable[[], Layout | None]]] = [
        ("no_action", lambda: current),
        ("rebalance", lambda: fixed.rebalanced(current.replicas)),
        ("repartition", lambda: fixed.repartitioned(current.replicas, rebalance=False)),
        ("repartition_rebalance", lambda: fixed.repartitioned(current.replicas)),
    ]
    for name, make in makers:
        if dead:
            yield Baseline(name, None, None, "a device it uses is dead")
        else:
            yield _timed(name, instance, make(), "the model does not fit the memory of its stages")
    staged = exclude_members(instance, current)
    layout = fixed.repartitioned(staged) if staged is not None else None
    yield _timed("exclude_rebalance", instance, layout, "what is left of a replica cannot hold the model")
    yield _timed("drop_replicas", instance, drop_replicas(instance, fixed), "every replica is hit")


def _timed(name: str, instance: Instance, layout: Layout | None, obstacle: str) -> Baseline:
    if layout is None:
        return Baseline(name, None, None, obstacle)
    return Baseline(name, iteration_time(instance, layout), layout)


def exclude_members(instance: Instance, layout: Layout, always: bool = False) -> list[Replica] | None:
    """Shrink damaged groups to their best subgroup; with `always` a slow member goes whatever it costs.

    A group without any legal subgroup disappears. Returns None if a replica loses all its groups; layers are
    for the caller to deal again (they are kept where they can be).
    """
    shrunk = []
    for replica in layout.replicas:
        stages = []
        for stage in replica.stages:
            names = _best_subgroup(instance, stage.devices, always)
            if names:
                stages.append(Stage(names, stage.layers))
        if not stages:
            return None
        shrunk.append(Replica(replica.microbatches, tuple(stages)))
    return shrunk


def _best_subgroup(instance: Instance, names: Sequence[str], always: bool) -> tuple[str, ...]:
    speeds = {name: instance.device(name).speed for name in names}
    order = sorted(names, key=lambda name: (-speeds[name], names.index(name)))
    usable = [name for name in order if speeds[name] > 0]
    if always:
        usable = [name for name in usable if speeds[name] == speeds[order[0]]]
    best: tuple[float, int] = (0.0, 0)
    for size in instance.legal_sizes:
        power_of_two = size & (size - 1) == 0 or size == len(names)
        if size <= len(usable) and power_of_two:
            best = max(best, (size * speeds[usable[size - 1]], -size))
    kept = set(usable[: -best[1]])
    return tuple(name for name in names if name in kept)


def drop_replicas(instance: Instance, fixed: FixedOrder) -> Layout | None:
    """Replicas with a dead device leave; of the others the slowest leave too while that helps."""
    assert instance.current is not None
    alive = [r for r in instance.current.replicas if not uses_dead_device(instance, Layout((r,)))]
    alive.sort(key=lambda replica: max(map(sum, zip(*replica_times(instance, replica), strict=True))))
    best: tuple[float, Layout] | None = None
    for count in range(len(alive), 0, -1):
        if count > instance.microbatches:
            continue
        layout = fixed.rebalanced(alive[:count])
        time = iteration_time(instance, layout)
        if best is not None and time >= best[0]:
            break
        best = (time, layout)
    return None if best is None else best[1]


def rerouting(instance: Instance, layout: Layout) -> Baseline:
    """Dead stages' micro-batches sent to the same stage of other replicas."""
    if not uses_dead_device(instance, layout):
        return Baseline("reroute", None, None, "no device is dead, there is nothing to reroute")
    time, obstacle = rerouted_time(instance, layout)
    return Baseline("reroute", time, None, obstacle)
