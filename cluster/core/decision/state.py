"""What a decision is made from: nodes, jobs, teams, reservations, as plain values that survive JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cluster.core.fairness.quota import TeamQuota
from cluster.core.placement.devices import NodeView, Slice
from cluster.core.requests import TaskShape

__all__ = [
    "ClusterState",
    "JobView",
    "NodeView",
    "Reservation",
    "Settings",
    "Slice",
    "state_from_record",
    "state_record",
]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that waits or runs.

    Attributes:
        tasks: the gang, all of it or nothing.
        kinds: acceptable device kinds, best first; empty for any.
        job_class: higher goes first and may take from lower ones of its team.
        deadline_s: absolute; None without.
        limit_s: declared bound of the run time; None without.
        expected_s: (low, middle, high) of the remaining run time; None where nobody knows.
        min_runtime_s: time a run is safe from preemption; None for the cluster's rule.
        attained_device_s, executed_s: service so far.
        evictions: how often it was stopped for others.
        held: set aside by a person.
        pin: name of the only node it may use.
        topology: ("required" or "preferred", level), such as ("required", "rack").
        reservation: name of the reservation it belongs to.
        placement: devices it holds; with `running` false, devices kept for it while victims stop.
        stopping: it was told to stop and still holds its devices.
        unit: of an elastic job's further devices, their number from 1; its class is so much lower.
        speeds: (kind, speed there relative to the others) for jobs whose speed depends on it; absent is 1.
        received: (kind, seconds it has run there) before the present run.
        speedup: speed of an elastic job on 1, 2, ... devices; empty for one that gains from each alike.
        keeps: share of its own speed that it keeps beside another job on the same devices; 0 where it shares
            none.
    """

    id: str
    tasks: tuple[TaskShape, ...]
    submitted_s: float
    team: str = ""
    user: str = ""
    kinds: tuple[str, ...] = ()
    job_class: int = 0
    deadline_s: float | None = None
    limit_s: float | None = None
    expected_s: tuple[float, float, float] | None = None
    min_runtime_s: float | None = None
    attained_device_s: float = 0.0
    executed_s: float = 0.0
    evictions: int = 0
    preemptible: bool = True
    held: bool = False
    pin: str = ""
    topology: tuple[str, str] | None = None
    reservation: str = ""
    running: bool = False
    started_s: float | None = None
    placement: tuple[Slice, ...] = ()
    stopping: bool = False
    unit: int = 0
    speeds: tuple[tuple[str, float], ...] = ()
    received: tuple[tuple[str, float], ...] = ()
    speedup: tuple[float, ...] = ()
    keeps: float = 0.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Devices of a kind kept for a team's marked jobs over a time.

    Attributes:
        milli: thousandths kept.
        lendable: preemptible jobs may use them meanwhile; they give way at once, whatever their minimum
            run time.
    """

    name: str
    kind: str
    milli: int
    start_s: float
    end_s: float
    team: str = ""
    lendable: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster's rules.

    Attributes:
        min_runtime_s: time a run is safe from preemption.
        most_evictions: stops after which a job is left alone.
        bounded_wait_s: wait after which a job goes before everybody and nothing may delay it further.
        preemption_attempts: searches for victims per decision.
        placement: a rule of `PLACEMENTS`.
    """

    min_runtime_s: float = 600.0
    most_evictions: int = 3
    bounded_wait_s: float = 24 * 3600.0
    preemption_attempts: int = 8
    placement: str = "consolidated"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything a decision depends on, besides the policy and the time.

    Attributes:
        usage: decayed device-seconds per team and user, the user's key being "team/user".
        user_shares: shares per "team/user"; absent is 1.
        queue_held: nothing starts; "" for no, otherwise why.
    """

    nodes: tuple[NodeView, ...]
    jobs: tuple[JobView, ...]
    teams: tuple[TeamQuota, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    user_shares: Mapping[str, int] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    settings: Settings = field(default_factory=Settings)
    queue_held: str = ""


def levelled(state: ClusterState) -> ClusterState:
    """Return the state with all devices of an elastic job in one class: the policy itself weighs them."""
    jobs = tuple(replace(job, job_class=job.job_class + job.unit) if job.unit else job for job in state.jobs)
    return replace(state, jobs=jobs)


def state_record(state: ClusterState) -> dict[str, Any]:
    """Return the state as JSON values, for the log of decisions."""
    return asdict(state)


def state_from_record(record: Mapping[str, Any]) -> ClusterState:
    """Return the state of a log entry."""
    return ClusterState(
        nodes=tuple(_node(node) for node in record["nodes"]),
        jobs=tuple(_job(job) for job in record["jobs"]),
        teams=tuple(TeamQuota(**team) for team in record["teams"]),
        usage=dict(record["usage"]),
        user_shares=dict(record["user_shares"]),
        reservations=tuple(Reservation(**entry) for entry in record["reservations"]),
        settings=Settings(**record["settings"]),
        queue_held=record["queue_held"],
    )


def _node(record: Mapping[str, Any]) -> NodeView:
    numbers = {name: tuple(record.get(name, ())) for name in ("unusable", "draining", "lost")}
    return NodeView(**{**record, **numbers, "domains": dict(record["domains"])})


def _job(record: Mapping[str, Any]) -> JobView:
    return JobView(
        **{
            **record,
            "tasks": tuple(TaskShape(**task) for task in record["tasks"]),
            "kinds": tuple(record["kinds"]),
            "expected_s": tuple(record["expected_s"]) if record["expected_s"] else None,
            "topology": tuple(record["topology"]) if record["topology"] else None,
            "placement": tuple(Slice(**piece) for piece in record["placement"]),
            "speeds": _pairs(record.get("speeds", ())),
            "received": _pairs(record.get("received", ())),
            "speedup": tuple(record.get("speedup", ())),
        }
    )


def _pairs(rows: Any) -> tuple[tuple[str, float], ...]:
    return tuple((str(kind), float(value)) for kind, value in rows)
