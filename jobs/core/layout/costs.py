"""What a layout costs: stage times, memory, and the iteration time by exact simulation."""

from collections.abc import Sequence

from jobs.core.layout.instance import Device, Instance, Layout, Replica
from jobs.core.pipeline.makespan import one_f_one_b_makespan

MEMORY_REL = 1e-9  # sums of decimal fractions that meet a limit exactly must not fail by rounding


def group_rate(instance: Instance, devices: Sequence[Device]) -> float:
    """Healthy-device speeds a tensor-parallel group is worth: k * efficiency[k] * min speed."""
    size = len(devices)
    return size * instance.efficiency[size] * min(device.speed for device in devices)


def group_capacity(devices: Sequence[Device]) -> float:
    """Layer memory a tensor-parallel group can hold in all: k * min memory."""
    return len(devices) * min(device.memory for device in devices)


def fits(need: float, capacity: float) -> bool:
    """Whether memory suffices; exactly equal does."""
    return need <= capacity * (1 + MEMORY_REL)


def stage_times(instance: Instance, devices: Sequence[Device], first: int, last: int) -> tuple[float, float]:
    """Forward and backward seconds of one micro-batch through layers `first` to `last` - 1 on a group."""
    rate = group_rate(instance, devices)
    return (
        (instance.forward_sums[last] - instance.forward_sums[first]) / rate,
        (instance.backward_sums[last] - instance.backward_sums[first]) / rate,
    )


def replica_times(instance: Instance, replica: Replica) -> tuple[list[float], list[float]]:
    """Forward and backward seconds of one micro-batch, one of each per stage."""
    forward_s, backward_s, first = [], [], 0
    for stage in replica.stages:
        devices = [instance.device(name) for name in stage.devices]
        forward, backward = stage_times(instance, devices, first, first + stage.layers)
        forward_s.append(forward)
        backward_s.append(backward)
        first += stage.layers
    return forward_s, backward_s


def replica_time(instance: Instance, replica: Replica) -> float:
    """Makespan of one replica."""
    return one_f_one_b_makespan(*replica_times(instance, replica), replica.microbatches, instance.transfer_s)


def iteration_time(instance: Instance, layout: Layout) -> float:
    """The longest replica's makespan; replicas with the same times are simulated once."""
    known: dict[tuple[tuple[float, ...], tuple[float, ...], int], float] = {}
    for replica in layout.replicas:
        forward_s, backward_s = replica_times(instance, replica)
        key = (tuple(forward_s), tuple(backward_s), replica.microbatches)
        if key not in known:
            known[key] = one_f_one_b_makespan(*key, instance.transfer_s)
    return max(known.values())


def uses_dead_device(instance: Instance, layout: Layout) -> bool:
    """Whether any device of the layout is dead."""
    return any(instance.device(name).speed == 0 for name in layout.devices())


def violation(instance: Instance, layout: Layout) -> str | None:
    """The first rule of the instance a layout of living devices breaks, in words; None if it breaks none."""
    if instance.replicas is not None and len(layout.replicas) != instance.replicas:
        return f"it has {len(layout.replicas)} replicas, the instance asks for {instance.replicas}"
    for index, replica in enumerate(layout.replicas):
        first = 0
        for position, stage in enumerate(replica.stages):
            last = first + stage.layers
            need = instance.memory_sums[last] - instance.memory_sums[first]
            devices = [instance.device(name) for name in stage.devices]
            if len(devices) not in instance.legal_sizes:
                return f"replica {index}, stage {position} has {len(devices)} devices, heads {instance.heads}"
            if not fits(need, group_capacity(devices)):
                return (
                    f"replica {index}, stage {position} needs {need / len(devices):g} memory per device, "
                    f"its smallest has {min(device.memory for device in devices):g}"
                )
            first = last
    return None
