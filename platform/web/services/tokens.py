"""API tokens: made once, shown once, stored as a hash, revoked for good."""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from cluster.core.roles import Scope
from cluster.models import Team, User
from cluster.queries import teams_of
from journal.services import audit
from web.errors import InvalidToken, NotGranted
from web.models import ApiToken
from web.secrets import digest_of, new_token, prefix_of, same

LAST_USED_EVERY = timedelta(minutes=1)
LONGEST_NAME = 100
LONGEST_LIFE = timedelta(days=3660)


class Made(NamedTuple):
    """A fresh token and the text that will never be known again."""

    token: ApiToken
    text: str


@transaction.atomic
def create_token(
    *,
    user: User,
    actor: str,
    name: str,
    scopes: list[str],
    team: Team | None = None,
    expires_at: datetime | None = None,
    by: ApiToken | None = None,
) -> Made:
    """Create a token for a person; a token that makes another one cannot give away more than it has.

    Raises InvalidToken or NotGranted.
    """
    _check(name, scopes, expires_at)
    if team is not None and not teams_of(user).filter(pk=team.pk).exists():
        raise InvalidToken([("/team", f"you have no team '{team.slug}'")])
    if by is not None:
        _check_parent(by, scopes, team, expires_at)
    new = new_token()
    ordered = [scope.value for scope in Scope if scope.value in scopes]
    token = ApiToken.objects.create(
        user=user,
        team=team,
        name=name,
        prefix=new.prefix,
        digest=new.digest,
        scopes=ordered,
        expires_at=expires_at,
    )
    detail = {"name": name, "scopes": ordered, "expires_at": expires_at.isoformat() if expires_at else None}
    audit(
        actor=actor,
        action="token.create",
        target=f"token:{new.prefix}",
        team_id=team.pk if team else None,
        detail=detail,
    )
    return Made(token, new.text)


@transaction.atomic
def revoke_token(*, user: User, token_id: UUID, actor: str) -> ApiToken:
    """Revoke one of a person's tokens; doing it again changes nothing."""
    token = ApiToken.objects.select_for_update(of=("self",)).get(pk=token_id, user=user)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        audit(actor=actor, action="token.revoke", target=f"token:{token.prefix}", team_id=token.team_id)
    return token


def find_token(text: str, ip: str | None = None) -> ApiToken | None:
    """Return the valid token with this text and note its use, or None."""
    prefix = prefix_of(text)
    if prefix is None:
        return None
    token = ApiToken.objects.select_related("user", "team").filter(prefix=prefix).first()
    if token is None or not same(token.digest, digest_of(text)) or not is_valid(token):
        return None
    _note_use(token, ip)
    return token


def is_valid(token: ApiToken) -> bool:
    """Whether a token still opens anything."""
    now = timezone.now()
    if token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= now):
        return False
    if not token.user.is_active:
        return False
    return token.team is None or teams_of(token.user).filter(pk=token.team.pk).exists()


def _note_use(token: ApiToken, ip: str | None) -> None:
    now = timezone.now()
    # Once a minute is enough for people, and spares a write with every request.
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - LAST_USED_EVERY)
    if token.last_used_at is None or token.last_used_at < now - LAST_USED_EVERY:
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now, last_used_ip=ip)


def _check(name: str, scopes: list[str], expires_at: datetime | None) -> None:
    faults = []
    if not name.strip() or len(name) > LONGEST_NAME or any(ord(character) < 32 for character in name):
        faults.append(("/name", f"must be a text of 1 to {LONGEST_NAME} characters"))
    known = [scope.value for scope in Scope]
    if not scopes or any(scope not in known for scope in scopes):
        faults.append(("/scopes", f"must hold at least one of {', '.join(known)}"))
    now = timezone.now()
    if expires_at is not None and not now < expires_at <= now + LONGEST_LIFE:
        faults.append(("/expires_at", "must lie in the future, within ten years"))
    if faults:
        raise InvalidToken(faults)


def _check_parent(by: ApiToken, scopes: list[str], team: Team | None, expires_at: datetime | None) -> None:
    if Scope.ADMIN.value not in by.scopes:
        raise NotGranted("only a session or a token with the scope 'admin' may create tokens")
    if not set(scopes) <= set(by.scopes):
        raise NotGranted("a token cannot create one with scopes it does not have")
    if by.team_id is not None and (team is None or team.pk != by.team_id):
        raise NotGranted("a token bound to a team can create tokens of that team only")
    if by.expires_at is not None and (expires_at is None or expires_at > by.expires_at):
        raise NotGranted("a token cannot create one that outlives it")
