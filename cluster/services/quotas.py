"""Quotas and policies: what operators change about who gets what."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count

from cluster.core.bodies import PolicyBody, QuotaBody, quota_rows
from cluster.core.errors import InvalidBody, QuotaError, StaleRow
from cluster.core.fairness.quota import quota_warnings
from cluster.core.fairness.tree import Account, fair_ranks
from cluster.core.states import ClusterName, DeviceState
from cluster.models import Coordinator, Device, Quota, Team
from cluster.services.live_state import read_quotas
from cluster.services.queue import coordinator_of, ring_coordinator
from journal.services import audit


def quota_of(team_id: UUID) -> Quota:
    """Return a team's quota; one that was never set guarantees nothing and may borrow everything."""
    found = Quota.objects.select_related("parent").filter(pk=team_id).first()
    return found or Quota(team_id=team_id)


@transaction.atomic
def set_quota(
    *, team_id: UUID, body: QuotaBody, actor: str, seen_version: int | None = None
) -> tuple[Quota, list[str]]:
    """Change a team's quota at once, also under load: nobody is stopped before somebody is owed devices.

    Return the quota, and sentences about guarantees that the cluster cannot keep all together.

    Raises:
        StaleRow: the caller decided on an older version.
        InvalidBody: an unknown parent, or a tree that bites its own tail.
    """
    team = Team.objects.select_for_update().get(pk=team_id)
    quota = Quota.objects.filter(pk=team_id).first() or Quota(team_id=team_id, version=0)
    present = max(1, quota.version)
    if seen_version is not None and seen_version != present:
        raise StaleRow("quota", seen_version, present)
    quota.parent = _parent(body, team)
    quota.kinds, quota.shares, quota.version = body.kinds, body.shares, present + 1
    quota.save()
    _refuse_loops()
    detail = {"shares": body.shares, "parent": body.parent, "quotas": quota_rows(body.kinds)}
    audit(actor=actor, action="quota.set", target=f"team:{team_id}", team_id=team_id, detail=detail)
    ring_coordinator()
    return quota, overbooked()


def _parent(body: QuotaBody, team: Team) -> Team | None:
    if body.parent is None:
        return None
    parent = Team.objects.filter(slug=body.parent).first()
    if parent is None or parent.pk == team.pk:
        raise InvalidBody([("/parent", f"there is no other team {body.parent!r}")])
    return parent


def _refuse_loops() -> None:
    try:
        fair_ranks([Account(team.name, team.parent, team.shares) for team in read_quotas()])
    except QuotaError as error:
        raise InvalidBody([("/parent", str(error))]) from error


def overbooked() -> list[str]:
    """Return sentences about kinds of which more is guaranteed than there is, in the larger cluster."""
    capacity: dict[str, int] = {}
    present = Device.objects.exclude(state=DeviceState.LOST).order_by()
    for row in present.values("node__is_simulated", "kind").annotate(devices=Count("id")):
        capacity[row["kind"]] = max(capacity.get(row["kind"], 0), 1000 * row["devices"])
    return quota_warnings(read_quotas(), capacity)


@transaction.atomic
def set_policy(
    *, name: ClusterName, body: PolicyBody, actor: str, seen_version: int | None = None
) -> Coordinator:
    """Change a queue's policy and rules; the next tick decides by them, what runs goes on."""
    coordinator_of(name)
    row = Coordinator.objects.select_for_update().get(pk=name)
    if seen_version is not None and seen_version != row.version:
        raise StaleRow("policy", seen_version, row.version)
    detail: dict[str, Any] = {"from": row.policy, "to": body.policy, "rules": body.rules}
    row.policy, row.rules, row.version = body.policy, body.rules, row.version + 1
    row.save(update_fields=["policy", "rules", "version"])
    audit(actor=actor, action="queue.policy", target=f"queue:{name}", detail=detail)
    ring_coordinator()
    return row
