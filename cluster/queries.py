"""Reading the cluster: who may see what, which devices can be used."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, QuerySet, Sum

from cluster.core.roles import RANK, Permission, Role, allows
from cluster.core.states import AllotmentState, ClusterName, DeviceState, EntryState
from cluster.models import Allotment, Coordinator, Device, Membership, QueueEntry, Team, User

# An elastic job that asks for so many takes all there are.
UNLIMITED = 4096


def teams_of(user: User | AnonymousUser) -> QuerySet[Team]:
    """Return the teams whose objects a person may see; everything else is 404 to them."""
    if not isinstance(user, User) or not user.is_active:
        return Team.objects.none()
    if user.is_superuser:
        return Team.objects.all()
    return Team.objects.filter(memberships__user=user)


def role_in(user: User | AnonymousUser, team_id: UUID) -> Role | None:
    """Return a person's role in a team."""
    if not isinstance(user, User) or not user.is_active:
        return None
    if user.is_superuser:
        return Role.ADMIN
    row = Membership.objects.filter(user=user, team_id=team_id).values_list("role", flat=True).first()
    return Role(row) if row else None


def highest_role(user: User | AnonymousUser) -> Role | None:
    """Return the role that counts for what no team owns, such as devices."""
    if not isinstance(user, User) or not user.is_active:
        return None
    if user.is_superuser:
        return Role.ADMIN
    roles = [Role(r) for r in Membership.objects.filter(user=user).values_list("role", flat=True)]
    return max(roles, key=RANK.__getitem__, default=None)


def teams_where(user: User | AnonymousUser, permission: Permission) -> QuerySet[Team]:
    """Return the teams in which a person's role is enough for a permission."""
    teams = teams_of(user)
    if not isinstance(user, User) or user.is_superuser:
        return teams
    roles = [role.value for role in Role if allows(role, permission)]
    # One membership row must match both.
    return teams.filter(pk__in=Membership.objects.filter(user=user, role__in=roles).values("team_id"))


def usable_devices() -> QuerySet[Device]:
    """Return real devices on which something new may be placed."""
    return Device.objects.filter(state=DeviceState.HEALTHY, node__is_simulated=False).select_related("node")


def fleet_snapshot() -> dict[str, Any]:
    """Return the present state of every device, for a stream that starts anew."""
    rows = Device.objects.select_related("node").values("id", "node__name", "kind", "index", "state")
    return {"devices": [{**row, "id": str(row["id"])} for row in rows]}


def queue_entries(states: Sequence[str]) -> QuerySet[QueueEntry]:
    """Return jobs of the queue in some states, with what a row of the queue shows."""
    rows = QueueEntry.objects.filter(state__in=states).select_related("team", "owner")
    return rows.prefetch_related("allotments__device__node")


class QueueReader:
    """Turns entries into rows for one reader; of teams they do not see only place and size are told."""

    def __init__(self, teams: set[UUID]) -> None:
        self.teams = teams
        self.known: dict[str, QueueEntry] = {}

    def row(self, entry: QueueEntry) -> dict[str, Any]:
        """Return an entry as a row of the queue."""
        mine = entry.team_id in self.teams
        shape = entry.demand["tasks"][0] if entry.demand["tasks"] else {"milli": 1000}
        return {
            "id": str(entry.job_id) if mine else None,
            "job": str(entry.job_id) if mine else None,
            "kind": entry.job_kind,
            "name": entry.label if mine else None,
            "team": entry.team.slug if mine else None,
            "owner": entry.owner.get_username() if mine else None,
            "state": entry.state,
            "is_simulated": entry.is_simulated,
            "order": min(entry.rank, 2**31),
            "position": entry.position,
            "reason": entry.reason,
            "message": entry.message,
            "next_step": entry.wait.get("next_step", ""),
            "numbers": entry.wait.get("numbers", {}),
            "ahead": [self._ahead(name) for name in entry.wait.get("ahead", [])],
            "predicted_start": entry.predicted_start_at,
            "earliest_start": entry.earliest_start_at,
            "latest_start": entry.latest_start_at,
            "devices": devices_of(entry),
            "milli": shape["milli"],
            "elastic": entry.demand["elastic"],
            "kinds": entry.demand["kinds"],
            "pin": entry.demand["pin"],
            "job_class": entry.demand["job_class"],
            "is_held": entry.is_held,
            "evictions": entry.evictions,
            "submitted_at": entry.submitted_at,
            "started_at": entry.started_at,
            "is_sharing": entry.demand.get("keeps", 0) > 0
            and any(row.milli < shape["milli"] for row in entry.allotments.all()),
            "holds": [str(row.device) for row in entry.allotments.all() if row.state != AllotmentState.KEPT],
        }

    def _ahead(self, job_id: str) -> dict[str, Any]:
        if job_id not in self.known:
            entry = QueueEntry.objects.select_related("team").filter(pk=job_id).first()
            if entry is None:
                return {"job": None, "name": None, "team": None, "devices": 0}
            self.known[job_id] = entry
        entry = self.known[job_id]
        mine = entry.team_id in self.teams
        return {
            "job": job_id if mine else None,
            "name": entry.label if mine else None,
            "team": entry.team.slug if mine else None,
            "devices": devices_of(entry),
        }


def devices_of(entry: QueueEntry) -> int:
    """Return how many devices a job asks for at most; 0 for an elastic one that takes all there are."""
    demand = entry.demand
    count = sum(task["count"] * task["devices"] for task in demand["tasks"])
    return 0 if demand["elastic"] and count >= UNLIMITED else count


def held_by_team(team_id: UUID) -> list[dict[str, Any]]:
    """Return what a team's jobs hold of each kind, in devices."""
    rows = (
        Allotment.objects.filter(entry__team_id=team_id)
        .exclude(state=AllotmentState.KEPT)
        .order_by()
        .values("device__kind", "entry__is_simulated")
        .annotate(milli=Sum("milli"))
    )
    return [
        {"kind": r["device__kind"], "is_simulated": r["entry__is_simulated"], "devices": r["milli"] / 1000}
        for r in sorted(rows, key=lambda r: (r["entry__is_simulated"], r["device__kind"]))
    ]


def rehearsal_facts() -> dict[str, Any]:
    """Return how large the rehearsal cluster is and how fast its clock runs."""
    simulated = Device.objects.filter(node__is_simulated=True).order_by()
    kinds = simulated.values("kind").annotate(devices=Count("id")).order_by("kind")
    row = Coordinator.objects.filter(pk=ClusterName.REHEARSAL).first()
    return {
        "nodes": simulated.values("node_id").distinct().count(),
        "devices": {entry["kind"]: entry["devices"] for entry in kinds},
        "clock_speed": row.clock_speed if row else 1.0,
        "jobs": QueueEntry.objects.filter(is_simulated=True).exclude(state=EntryState.ENDED).count(),
    }
