"""The words of the planner: devices, layers, the instance to plan for, and a layout of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. `speed` is a factor of a healthy device (0 is dead), `memory` what it can hold."""

    id: str
    node: str
    speed: float
    memory: float


@dataclass(frozen=True, slots=True)
class Layer:
    """Seconds of one micro-batch on one healthy device, and the memory of the whole layer."""

    forward: float
    backward: float
    memory: float


@dataclass(frozen=True, slots=True)
class Stage:
    """One tensor-parallel group and how many consecutive layers it owns."""

    devices: tuple[str, ...]
    layers: int


@dataclass(frozen=True, slots=True)
class Replica:
    """An ordered pipeline of stages and the micro-batches it runs."""

    microbatches: int
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a job runs: its data-parallel replicas, in order."""

    replicas: tuple[Replica, ...]

    def devices(self) -> set[str]:
        """Every device that works."""
        return {name for replica in self.replicas for stage in replica.stages for name in stage.devices}


@dataclass(frozen=True)
class Instance:
    """One planning problem, already valid (see `reading.read_instance`).

    `sizes` are the allowed tensor-parallel degrees in ascending order, whether or not they divide `heads`;
    `replicas` is None where the planner chooses; `time_limit_s` bounds the search.
    """

    devices: tuple[Device, ...]
    layers: tuple[Layer, ...]
    heads: int | None
    sizes: tuple[int, ...]
    efficiency: Mapping[int, float]
    replicas: int | None
    microbatches: int
    transfer_s: float = 0.0
    current: Layout | None = None
    time_limit_s: float = 10.0
    _by_id: dict[str, Device] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {device.id: device for device in self.devices})

    def device(self, name: str) -> Device:
        """The device of that name."""
        return self._by_id[name]

    @cached_property
    def living(self) -> tuple[Device, ...]:
        """Devices that are not dead, in the instance's order."""
        return tuple(device for device in self.devices if device.speed > 0)

    @cached_property
    def legal_sizes(self) -> tuple[int, ...]:
        """Allowed sizes that divide the heads."""
        return tuple(k for k in self.sizes if self.heads is None or self.heads % k == 0)

    @cached_property
    def forward_sums(self) -> tuple[float, ...]:
        """forward_sums[i] is the forward time of the first i layers; length len(layers) + 1."""
        return _sums([layer.forward for layer in self.layers])

    @cached_property
    def backward_sums(self) -> tuple[float, ...]:
        """As `forward_sums`, of the backward times."""
        return _sums([layer.backward for layer in self.layers])

    @cached_property
    def memory_sums(self) -> tuple[float, ...]:
        """As `forward_sums`, of the memory."""
        return _sums([layer.memory for layer in self.layers])

    @cached_property
    def uniform(self) -> bool:
        """Whether all layers are alike, so that only their number matters."""
        return len(set(self.layers)) == 1


def _sums(values: list[float]) -> tuple[float, ...]:
    if len(set(values)) == 1:
        return tuple(index * values[0] for index in range(len(values) + 1))
    return tuple(accumulate(values, initial=0.0))
