"""Who asks, and what they may do: a person's roles, cut down by the scopes and the team of their token."""

from typing import Any, Protocol, cast
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from cluster.core.roles import NEEDS, Permission, Role, allows, scopes_allow
from cluster.models import Team, User
from cluster.queries import highest_role, role_in, teams_of, teams_where


class Token(Protocol):
    """What counts of an API token here; the web project knows the rest."""

    prefix: str
    scopes: list[str]
    team_id: UUID | None


def method_of(request: Request) -> str:
    """Return the method whose rules hold: a HEAD is a GET."""
    return "GET" if request.method == "HEAD" else request.method or ""


def token_of(request: Request) -> Token | None:
    """Return the token a request came with, or None for a session."""
    return cast("Token | None", request.auth)


def user_of(request: Request) -> User:
    """Return the signed-in person; only for requests that passed the gate."""
    return cast(User, request.user)


def actor_of(request: Request) -> str:
    """Return how the audit log names whoever asks."""
    token = token_of(request)
    name = user_of(request).get_username()
    return f"{name} ({token.prefix})" if token else name


def bound_team(request: Request) -> UUID | None:
    """Return the team that the request's token is bound to."""
    token = token_of(request)
    return token.team_id if token else None


def visible_teams(request: Request) -> QuerySet[Team]:
    """Return the teams whose objects the caller may see."""
    return _within(request, teams_of(user_of(request)))


def teams_allowing(request: Request, permission: Permission) -> QuerySet[Team]:
    """Return the teams in which the caller may do something."""
    token = token_of(request)
    if token and not scopes_allow(token.scopes, permission):
        return Team.objects.none()
    return _within(request, teams_where(user_of(request), permission))


def demand(request: Request, permission: Permission, team_id: UUID) -> None:
    """Refuse a caller whose role in a team they see is not enough."""
    _demand(request, permission, role_in(user_of(request), team_id), "in this team")


def demand_somewhere(request: Request, permission: Permission) -> None:
    """Refuse a caller whose role is enough nowhere; for what no team owns, such as devices."""
    bound = bound_team(request)
    user = user_of(request)
    _demand(request, permission, role_in(user, bound) if bound else highest_role(user), "")


def _within(request: Request, teams: QuerySet[Team]) -> QuerySet[Team]:
    bound = bound_team(request)
    return teams.filter(pk=bound) if bound else teams


def _demand(request: Request, permission: Permission, role: Role | None, where: str) -> None:
    needed, scope = NEEDS[permission]
    token: Any = token_of(request)
    if token and not scopes_allow(token.scopes, permission):
        raise PermissionDenied(f"this token lacks the scope '{scope}'")
    if not allows(role, permission):
        words = " ".join(
            part for part in ("this needs the role", f"'{needed}'", where, "or a higher one") if part
        )
        raise PermissionDenied(words)
