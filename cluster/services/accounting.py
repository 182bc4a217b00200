"""Accounts of use: what fades, for fair share, and what stays, by day, for people who ask who used what."""

from collections import defaultdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet, Sum

from cluster.core.fairness.usage import accrued, decayed
from cluster.core.states import AllotmentState, ClusterName
from cluster.models import Allotment, Coordinator, FairUsage, Quota

ADD_DAY = """
INSERT INTO cluster_dayusage
    (day, team_id, owner_id, kind, is_simulated, device_s, borrowed_device_s, recovered_device_s)
VALUES (%s, %s, %s, %s, %s, %s, %s, 0)
ON CONFLICT (day, team_id, owner_id, kind, is_simulated) DO UPDATE
SET device_s = cluster_dayusage.device_s + EXCLUDED.device_s,
    borrowed_device_s = cluster_dayusage.borrowed_device_s + EXCLUDED.borrowed_device_s
"""
ADD_RECOVERED = """
INSERT INTO cluster_dayusage
    (day, team_id, owner_id, kind, is_simulated, device_s, borrowed_device_s, recovered_device_s)
VALUES (%s, %s, %s, %s, FALSE, 0, 0, %s)
ON CONFLICT (day, team_id, owner_id, kind, is_simulated) DO UPDATE
SET recovered_device_s = cluster_dayusage.recovered_device_s + EXCLUDED.recovered_device_s
"""
Owner = tuple[UUID, UUID]


def charge(rows: QuerySet[Allotment], now: datetime, *, is_simulated: bool) -> None:
    """Put into the accounts what allotments have used since they were last charged.

    Idle or not, what is held is used. A clock that jumped back charges nothing.
    """
    speed = _speed() if is_simulated else 1.0
    rows = rows.exclude(state=AllotmentState.KEPT).filter(charged_at__lt=now)
    used: dict[tuple[UUID, UUID, str], float] = defaultdict(float)
    by_owner: dict[Owner, float] = defaultdict(float)
    longest: dict[Owner, float] = defaultdict(float)
    fields = ("entry__team_id", "entry__owner_id", "device__kind", "milli", "charged_at")
    for team, owner, kind, milli, charged_at in rows.values_list(*fields):
        seconds = (now - charged_at).total_seconds() * speed
        used[team, owner, kind] += seconds * milli / 1000
        by_owner[team, owner] += seconds * milli / 1000
        longest[team, owner] = max(longest[team, owner], seconds)
    if not used:
        return
    shares = borrowed_shares({(team, kind) for team, _, kind in used}, is_simulated=is_simulated)
    with connection.cursor() as cursor:
        cursor.executemany(
            ADD_DAY,
            [
                (now.date(), team, owner, kind, is_simulated, device_s, device_s * shares[team, kind])
                for (team, owner, kind), device_s in sorted(used.items(), key=str)
            ],
        )
    for owner, device_s in by_owner.items():
        _add_fading(owner, device_s, longest[owner], now, is_simulated=is_simulated)
    rows.update(charged_at=now)


def add_recovered(*, team_id: UUID, owner_id: UUID, kind: str, device_s: float, now: datetime) -> None:
    """Put into the accounts what a person's jobs did in the bubbles of other jobs' devices.

    `device_s` is what the same work takes on devices of its own. It is nobody's use: no quota or fair share
    counts it.
    """
    if device_s > 0:
        with connection.cursor() as cursor:
            cursor.execute(ADD_RECOVERED, [now.date(), team_id, owner_id, kind, device_s])


def borrowed_shares(pairs: set[tuple[UUID, str]], *, is_simulated: bool) -> dict[tuple[UUID, str], float]:
    """Return which part of what a team holds of a kind now is above its guarantee."""
    held: dict[tuple[UUID, str], int] = {
        (row["entry__team_id"], row["device__kind"]): row["held"]
        for row in Allotment.objects.filter(
            entry__is_simulated=is_simulated, entry__team_id__in={team for team, _ in pairs}
        )
        .exclude(state=AllotmentState.KEPT)
        .order_by()
        .values("entry__team_id", "device__kind")
        .annotate(held=Sum("milli"))
    }
    quotas: dict[UUID, Any] = dict(
        Quota.objects.filter(team_id__in={team for team, _ in pairs}).values_list("team_id", "kinds")
    )
    shares = {}
    for team, kind in pairs:
        guaranteed = (quotas.get(team, {}).get(kind) or {}).get("guaranteed") or 0
        total = held.get((team, kind), 0)
        shares[team, kind] = max(0, total - guaranteed) / total if total else 0.0
    return shares


def fading_usage(now: datetime, *, is_simulated: bool) -> dict[str, float]:
    """Return the decayed device-seconds of every owner, the key being "team/user"."""
    speed = _speed() if is_simulated else 1.0
    rows = FairUsage.objects.filter(is_simulated=is_simulated)
    return {
        f"{team}/{owner}": decayed(device_s, (now - as_of).total_seconds() * speed)
        for team, owner, device_s, as_of in rows.values_list(
            "team__slug", "owner__username", "device_s", "as_of"
        )
    }


def _add_fading(owner: Owner, device_s: float, seconds: float, now: datetime, *, is_simulated: bool) -> None:
    row, _ = FairUsage.objects.select_for_update().get_or_create(
        team_id=owner[0], owner_id=owner[1], is_simulated=is_simulated, defaults={"as_of": now}
    )
    speed = _speed() if is_simulated else 1.0
    elapsed_s = (now - row.as_of).total_seconds() * speed
    row.device_s = decayed(row.device_s, elapsed_s) + accrued(device_s, seconds)
    row.as_of = max(now, row.as_of)
    row.save(update_fields=["device_s", "as_of"])


def _speed() -> float:
    return (
        Coordinator.objects.filter(pk=ClusterName.REHEARSAL).values_list("clock_speed", flat=True).first()
        or 1.0
    )
