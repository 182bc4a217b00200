"""Appending to the audit chain."""

from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from journal.core.chain import GENESIS, link_hash
from journal.models import AuditEntry

CHAIN_LOCK = 0x466F7265_62617901


@transaction.atomic
def audit(
    *, actor: str, action: str, target: str, team_id: UUID | None = None, detail: dict[str, Any] | None = None
) -> AuditEntry:
    """Append one entry; writers queue on an advisory lock, since each hash needs the one before it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CHAIN_LOCK])
    last = AuditEntry.objects.order_by("-number").first()
    entry = AuditEntry(
        number=last.number + 1 if last else 1,
        at=timezone.now(),
        actor=actor[:200],
        action=action,
        target=target[:200],
        team_id=team_id,
        detail=detail or {},
        previous_hash=last.hash if last else GENESIS,
    )
    entry.hash = link_hash(entry.previous_hash, entry.content)
    entry.save(force_insert=True)
    return entry
