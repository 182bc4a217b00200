"""Whether an instance can have any layout, before it is searched."""

from collections import Counter

from jobs.core.errors import NoFeasiblePlan
from jobs.core.layout.instance import Instance


def check_feasible(instance: Instance) -> None:
    """Raise NoFeasiblePlan with the first cause that applies; `memory` is found by searching only."""
    replicas, living = instance.replicas or 1, len(instance.living)
    if instance.microbatches < replicas:
        raise NoFeasiblePlan(
            f"{instance.microbatches} micro-batches are too few: {replicas} replicas run at least one each",
            "microbatches",
        )
    if living < replicas:
        raise NoFeasiblePlan(f"{living} living devices are too few for {replicas} replicas", "devices")
    if not instance.legal_sizes:
        legal = ", ".join(str(k) for k in powers_of_two(instance.heads or 1))
        raise NoFeasiblePlan(
            f"no allowed size ({_listed(instance.sizes)}) divides the {instance.heads} heads; "
            f"powers of two that do: {legal}",
            "heads",
        )
    largest = max(Counter(device.node for device in instance.living).values())
    if largest < min(instance.legal_sizes):
        raise NoFeasiblePlan(
            f"no node can form a group of an allowed size ({_listed(instance.legal_sizes)}): "
            f"the largest has {largest} living devices",
            "sizes",
        )


def powers_of_two(heads: int) -> list[int]:
    """Powers of two that divide a number of heads."""
    return [2**i for i in range(heads.bit_length()) if heads % 2**i == 0]


def no_room(instance: Instance, proven: bool) -> NoFeasiblePlan:
    """The error for an instance whose search found nothing, whether or not it looked everywhere."""
    replicas = instance.replicas or 1
    nodes = Counter(device.node for device in instance.living)
    groups = sum(count // min(instance.legal_sizes) for count in nodes.values())
    if groups < replicas:
        return NoFeasiblePlan(
            f"the living devices form at most {groups} groups of an allowed size, {replicas} replicas need "
            "at least one each",
            "memory",
        )
    found = "no layout fits the memory" if proven else "no layout that fits the memory was found in time"
    return NoFeasiblePlan(
        f"{found}: every replica must hold all {len(instance.layers)} layers, "
        f"{instance.memory_sums[-1]:g} in all",
        "memory",
    )


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
