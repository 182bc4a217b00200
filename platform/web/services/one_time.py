"""Login links and WebSocket tickets: good once, for a short time."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from cluster.models import User
from journal.services import audit
from web.models import ApiToken, OneTimeSecret
from web.secrets import digest_of, new_one_time_secret

LOGIN, TICKET = "login", "ticket"
LIFE = {LOGIN: timedelta(minutes=15), TICKET: timedelta(seconds=30)}


@transaction.atomic
def issue_secret(
    *, purpose: str, user: User, token: ApiToken | None = None, life: timedelta | None = None
) -> str:
    """Return a fresh secret for a person, good for `life` or as long as is usual for its purpose.

    A ticket remembers the token it was asked for with.
    """
    now = timezone.now()
    OneTimeSecret.objects.filter(Q(expires_at__lt=now - timedelta(hours=1)), user=user).delete()
    secret = new_one_time_secret()
    OneTimeSecret.objects.create(
        digest=digest_of(secret),
        purpose=purpose,
        user=user,
        token=token,
        expires_at=now + (life or LIFE[purpose]),
    )
    return secret


@transaction.atomic
def redeem_secret(secret: str, *, purpose: str) -> OneTimeSecret | None:
    """Use a secret up and return what it stands for, or None if it is unknown, used or too old."""
    now = timezone.now()
    fresh = OneTimeSecret.objects.filter(
        digest=digest_of(secret),
        purpose=purpose,
        used_at__isnull=True,
        expires_at__gt=now,
        user__is_active=True,
    )
    # The conditional update lets exactly one of several requests have it.
    if fresh.update(used_at=now) != 1:
        return None
    found = OneTimeSecret.objects.select_related("user", "token__user", "token__team").get(
        digest=digest_of(secret)
    )
    if purpose == LOGIN:
        audit(actor=found.user.get_username(), action="user.sign-in", target="one-time link")
    return found
