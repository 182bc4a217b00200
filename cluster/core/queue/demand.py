"""What a job of the live queue asks for, as plain values that survive JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cluster.core.errors import RequestError
from cluster.core.requests import TaskShape, total_devices, total_milli

MOST_CLASS = 100


@dataclass(frozen=True, slots=True)
class Demand:
    """A job's request.

    Attributes:
        tasks: a gang, all of it or nothing; of an elastic job one group of single devices.
        elastic: it runs with one device and takes more, up to all, while nobody else is worse off.
        wanted: of an elastic job, how many devices it can use now.
        kinds: acceptable device kinds, best first; empty for any.
        pin: name of the only node it may use.
        job_class: higher goes first and may take from lower ones; -100 to 100.
        deadline_s: Unix time by which it should have ended.
        limit_s: the most it will run; it is stopped after that.
        min_runtime_s: how long a run is safe from preemption; None for the cluster's rule.
        believed_s: run time in all, where it is known.
        topology: ("required" or "preferred", level of the topology).
        reservation: name of the reservation whose devices it may use.
        speeds: (kind, speed there relative to the others), where it depends on the kind; absent is 1.
        speedup: speed of an elastic job on 1, 2, ... devices; empty where each adds as much as the first.
        keeps: share of its own speed that it keeps beside another job on the same devices; 0: it shares none.
        lends: while it runs, others may work in the idle moments of its devices.
        borrows: of an elastic job, it may start without a device while somebody lends, and take one later.
    """

    tasks: tuple[TaskShape, ...]
    elastic: bool = False
    wanted: int = 0
    kinds: tuple[str, ...] = ()
    pin: str = ""
    job_class: int = 0
    deadline_s: float | None = None
    limit_s: float | None = None
    min_runtime_s: float | None = None
    believed_s: float | None = None
    preemptible: bool = True
    topology: tuple[str, str] | None = None
    reservation: str = ""
    speeds: tuple[tuple[str, float], ...] = ()
    speedup: tuple[float, ...] = ()
    keeps: float = 0.0
    lends: bool = False
    borrows: bool = False

    def __post_init__(self) -> None:
        if self.elastic and (len(self.tasks) != 1 or self.tasks[0].devices != 1):
            raise RequestError("devices", "an elastic job asks for single devices")
        if not -MOST_CLASS <= self.job_class <= MOST_CLASS:
            raise RequestError("class", f"{self.job_class} is not within -{MOST_CLASS} and {MOST_CLASS}")

    @property
    def most_units(self) -> int:
        """Return with how many devices an elastic job could run now, at least one."""
        return max(1, min(self.wanted or self.tasks[0].count, self.tasks[0].count))

    @property
    def devices(self) -> int:
        """Return the devices it asks for at most."""
        return total_devices(self.tasks)

    @property
    def milli(self) -> int:
        """Return the thousandths it asks for at most."""
        return total_milli(self.tasks)


def demand_to_json(demand: Demand) -> dict[str, Any]:
    """Return a demand as JSON values."""
    return asdict(demand)


def demand_from_json(document: Mapping[str, Any]) -> Demand:
    """Return the demand that `demand_to_json` wrote."""
    tasks = tuple(TaskShape(**task) for task in document["tasks"])
    topology = document.get("topology")
    return Demand(
        **{
            **document,
            "tasks": tasks,
            "kinds": tuple(document["kinds"]),
            "topology": (topology[0], topology[1]) if topology else None,
            "speeds": tuple((kind, speed) for kind, speed in document.get("speeds", ())),
            "speedup": tuple(document.get("speedup", ())),
        }
    )
