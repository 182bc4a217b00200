"""Reading the live cluster as the values that a decision is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection

from cluster.core.decision import ClusterState, NodeView, Reservation, Settings, Slice
from cluster.core.errors import QuotaError
from cluster.core.fairness.quota import TeamQuota
from cluster.core.queue import Entry, Held, QueueClock, Units, demand_from_json, pace_of, units_of
from cluster.core.states import AllotmentState, ClusterName, DeviceState, EntryState
from cluster.models import Allotment, BookedDevices, Coordinator, Device, QueueEntry, Quota, Team
from cluster.services.accounting import fading_usage

RULES = tuple(field.name for field in fields(Settings))


@dataclass(frozen=True)
class Fleet:
    """Nodes as the decision sees them, and which device a number on a node stands for."""

    nodes: tuple[NodeView, ...]
    device_at: Mapping[tuple[str, int], UUID]
    place_of: Mapping[UUID, tuple[str, int]]

    @property
    def devices(self) -> int:
        """Return how many devices there are."""
        return len(self.place_of)


@dataclass(frozen=True)
class LiveState:
    """The state of one queue at one moment; `now_s` is the queue's clock."""

    state: ClusterState
    units: Units
    fleet: Fleet
    clock: QueueClock
    now_s: float
    entries: tuple[Entry, ...]


def clock_of(coordinator: Coordinator) -> QueueClock:
    """Return the clock of a queue."""
    since = coordinator.clock_from.timestamp() if coordinator.clock_from else 0.0
    return QueueClock(since, coordinator.clock_speed)


def moment(wall_s: float) -> datetime:
    """Return Unix seconds as a moment."""
    return datetime.fromtimestamp(wall_s, UTC)


def rules_of(coordinator: Coordinator) -> Settings:
    """Return a queue's rules, the defaults for what was not changed."""
    return Settings(**{name: value for name, value in coordinator.rules.items() if name in RULES})


# What was read last, by cluster: devices change rarely and are read at every tick and submission.
_fleets: dict[ClusterName, tuple[Any, Fleet]] = {}
FLEET_KEY = """
SELECT count(*), sum(device.version), sum(hashtext(device.id::text || device.kind)::bigint),
       sum(device.memory_bytes), sum(device.index), sum(hashtext(node.name || node.facts::text)::bigint)
FROM cluster_device AS device JOIN cluster_node AS node ON node.id = device.node_id
WHERE node.is_simulated = %s
"""


def read_fleet(name: ClusterName) -> Fleet:
    """Return the nodes of a cluster; a machine with several kinds of devices is a node for each."""
    with connection.cursor() as cursor:
        cursor.execute(FLEET_KEY, [name is ClusterName.REHEARSAL])
        key = cursor.fetchone()
    kept = _fleets.get(name)
    if kept is None or kept[0] != key:
        kept = _fleets[name] = (key, _read_fleet(name))
    return kept[1]


def _read_fleet(name: ClusterName) -> Fleet:
    rows = (
        Device.objects.filter(node__is_simulated=name is ClusterName.REHEARSAL)
        .order_by("node__name", "kind", "index")
        .values_list("id", "node__name", "kind", "memory_bytes", "state", "node__facts")
    )
    groups: dict[tuple[str, str], list[tuple[UUID, int, str, Any]]] = {}
    for device, node, kind, memory, state, facts in rows:
        groups.setdefault((node, kind), []).append((device, memory, state, facts))
    nodes: list[NodeView] = []
    device_at: dict[tuple[str, int], UUID] = {}
    taken: set[str] = set()
    for (node, kind), devices in groups.items():
        label = node if node not in taken else f"{node} ({kind})"
        taken.add(label)
        states = [state for _, _, state, _ in devices]
        nodes.append(
            NodeView(
                name=label,
                devices=len(devices),
                kind=kind,
                unusable=_numbers(states, set(DeviceState) - {DeviceState.HEALTHY}),
                domains=dict((devices[0][3] or {}).get("domains") or {}),
                memory_bytes=min(memory for _, memory, _, _ in devices),
                draining=_numbers(states, {DeviceState.DRAINING}),
                lost=_numbers(states, {DeviceState.LOST}),
            )
        )
        device_at.update({(label, number): device for number, (device, _, _, _) in enumerate(devices)})
    return Fleet(tuple(nodes), device_at, {device: place for place, device in device_at.items()})


def _numbers(states: Sequence[str], wanted: set[DeviceState]) -> tuple[int, ...]:
    return tuple(number for number, state in enumerate(states) if state in wanted)


def read_quotas() -> tuple[TeamQuota, ...]:
    """Return every team with its quota; one without is guaranteed nothing and may borrow everything."""
    quotas = {quota.team_id: quota for quota in Quota.objects.all()}
    slugs = dict(Team.objects.order_by("slug").values_list("id", "slug"))
    teams = []
    for team_id, slug in slugs.items():
        quota = quotas.get(team_id)
        parent = slugs.get(quota.parent_id, "") if quota and quota.parent_id else ""
        teams.append(team_quota(slug, quota.kinds, quota.shares, parent) if quota else TeamQuota(slug))
    return tuple(teams)


def read_reservations(name: ClusterName, clock: QueueClock, now_s: float) -> tuple[Reservation, ...]:
    """Return the reservations of a cluster that are not over yet."""
    rows = BookedDevices.objects.filter(is_simulated=name is ClusterName.REHEARSAL).select_related("team")
    found = tuple(
        Reservation(
            name=row.name,
            kind=row.kind,
            milli=row.milli,
            start_s=clock.queue_s(row.start_at.timestamp()),
            end_s=clock.queue_s(row.end_at.timestamp()),
            team=row.team.slug,
            lendable=row.is_lendable,
        )
        for row in rows.order_by("start_at", "name")
    )
    return tuple(entry for entry in found if entry.end_s > now_s)


def team_quota(slug: str, kinds: Mapping[str, Any], shares: int = 1, parent: str = "") -> TeamQuota:
    """Return a quota row as the decision sees it; QuotaError where it makes no sense."""

    def column(name: str) -> dict[str, int]:
        return {kind: entry[name] for kind, entry in kinds.items() if entry.get(name) is not None}

    if not isinstance(kinds, Mapping):
        raise QuotaError(f"team {slug!r}: kinds must be an object")
    return TeamQuota(slug, parent, shares, column("guaranteed"), column("borrowable"), column("lendable"))


def read_entries(name: ClusterName, fleet: Fleet, clock: QueueClock) -> tuple[Entry, ...]:
    """Return the jobs of a queue with what they hold."""
    simulated = name is ClusterName.REHEARSAL
    queryset = QueueEntry.objects.filter(is_simulated=simulated).exclude(state=EntryState.ENDED)
    queryset = queryset.order_by("submitted_at", "job_id")
    held: dict[UUID, list[Held]] = {}
    rows = Allotment.objects.filter(entry__is_simulated=simulated).order_by("since", "id")
    for pk, job, device, milli, task, state, since in rows.values_list(
        "pk", "entry_id", "device_id", "milli", "task", "state", "since"
    ):
        node, number = fleet.place_of[device]
        piece = Slice(node, number, milli, task)
        held.setdefault(job, []).append(
            Held(pk, piece, AllotmentState(state), clock.queue_s(since.timestamp()))
        )
    kind_at = {node.name: node.kind for node in fleet.nodes}
    return tuple(
        _entry(row, held.get(row["job_id"], []), clock, kind_at) for row in queryset.values(*_ENTRY_FIELDS)
    )


_ENTRY_FIELDS = (
    "job_id",
    "team__slug",
    "owner__username",
    "demand",
    "state",
    "submitted_at",
    "started_at",
    "executed_s",
    "attained_device_s",
    "evictions",
    "is_held",
    "done_s",
    "done_at",
    "received",
)


def _entry(
    row: Mapping[str, Any], held: Sequence[Held], clock: QueueClock, kind_at: Mapping[str, str]
) -> Entry:
    started, counted, demand = row["started_at"], row["done_at"], demand_from_json(row["demand"])
    slices = [piece.slice for piece in held if piece.state is not AllotmentState.KEPT]
    if demand.deadline_s is not None:
        demand = replace(demand, deadline_s=clock.queue_s(demand.deadline_s))
    return Entry(
        job_id=str(row["job_id"]),
        team=row["team__slug"],
        owner=row["owner__username"],
        demand=demand,
        state=EntryState(row["state"]),
        submitted_s=clock.queue_s(row["submitted_at"].timestamp()),
        started_s=None if started is None else clock.queue_s(started.timestamp()),
        executed_s=row["executed_s"],
        attained_device_s=row["attained_device_s"],
        evictions=row["evictions"],
        is_held=row["is_held"],
        held=tuple(held),
        done_s=row["done_s"],
        counted_s=None if counted is None else clock.queue_s(counted.timestamp()),
        pace=pace_of(demand, kind_at.get(slices[0].node, "") if slices else "", slices) if started else 1.0,
        received=tuple(sorted(row["received"].items())),
    )


def lock_entries(name: ClusterName) -> None:
    """Keep everybody else from changing what the jobs of a queue hold, until the transaction ends.

    Whoever changes what a job holds, or charges for it, takes the job's row first.
    """
    rows = QueueEntry.objects.filter(is_simulated=name is ClusterName.REHEARSAL)
    rows = rows.exclude(state=EntryState.ENDED).order_by("job_id")
    list(rows.select_for_update().values_list("job_id"))


def read_live(coordinator: Coordinator, now: datetime) -> LiveState:
    """Return the state of a queue now."""
    name = ClusterName(coordinator.name)
    clock = clock_of(coordinator)
    fleet = read_fleet(name)
    entries = read_entries(name, fleet, clock)
    now_s = clock.queue_s(now.timestamp())
    units = units_of(entries, now_s)
    state = ClusterState(
        nodes=fleet.nodes,
        jobs=tuple(units.views),
        teams=read_quotas(),
        reservations=read_reservations(name, clock, now_s),
        usage=fading_usage(now, is_simulated=name is ClusterName.REHEARSAL),
        settings=rules_of(coordinator),
        queue_held=coordinator.held_reason,
    )
    return LiveState(state, units, fleet, clock, now_s, entries)
