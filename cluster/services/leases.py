"""Leases: one owner at a time, the database's clock, and an epoch that only grows."""

from typing import NamedTuple

from django.db import connection

from cluster.core.errors import LeaseLost
from cluster.models import Lease

# One statement decides: the row is taken only if it is free, expired, or already the caller's.
TAKE = """
INSERT INTO cluster_lease (name, owner, epoch, expires_at)
VALUES (%(name)s, %(owner)s, 1, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (name) DO UPDATE
SET owner = EXCLUDED.owner, epoch = cluster_lease.epoch + 1, expires_at = EXCLUDED.expires_at
WHERE cluster_lease.expires_at < clock_timestamp() OR cluster_lease.owner = ''
RETURNING epoch
"""
RENEW = """
UPDATE cluster_lease SET expires_at = clock_timestamp() + %(seconds)s * interval '1 second'
WHERE name = %(name)s AND owner = %(owner)s AND epoch = %(epoch)s AND expires_at >= clock_timestamp()
"""
RENEW_ALL = """
UPDATE cluster_lease SET expires_at = clock_timestamp() + %s * interval '1 second'
WHERE owner = %s AND expires_at >= clock_timestamp() RETURNING name
"""
HOLD = "SELECT 1 FROM cluster_lease WHERE name = %s AND owner = %s AND epoch = %s FOR UPDATE"


class Held(NamedTuple):
    """A lease in hand."""

    name: str
    owner: str
    epoch: int


def take_lease(*, name: str, owner: str, seconds: float) -> Held | None:
    """Take a free or expired lease, or return None if somebody holds it."""
    with connection.cursor() as cursor:
        cursor.execute(TAKE, {"name": name, "owner": owner, "seconds": seconds})
        row = cursor.fetchone()
    return Held(name, owner, row[0]) if row else None


def renew_lease(held: Held, *, seconds: float) -> None:
    """Push the expiry out; raise LeaseLost if it is somebody else's now."""
    with connection.cursor() as cursor:
        cursor.execute(RENEW, {**held._asdict(), "seconds": seconds})
        if cursor.rowcount != 1:
            raise LeaseLost(held.name)


def renew_all(owner: str, *, seconds: float) -> set[str]:
    """Push out everything an owner still holds; return the names of those leases."""
    with connection.cursor() as cursor:
        cursor.execute(RENEW_ALL, [seconds, owner])
        return {row[0] for row in cursor.fetchall()}


def fence(held: Held) -> None:
    """Lock the lease's row in the caller's transaction, so that only its present holder commits."""
    with connection.cursor() as cursor:
        cursor.execute(HOLD, [held.name, held.owner, held.epoch])
        if cursor.fetchone() is None:
            raise LeaseLost(held.name)


def release_all(owner: str) -> None:
    """Give back everything an owner holds."""
    Lease.objects.filter(owner=owner).update(owner="")


def release_lease(held: Held) -> None:
    """Give a lease back; harmless if it was lost."""
    Lease.objects.filter(name=held.name, owner=held.owner, epoch=held.epoch).update(owner="")
