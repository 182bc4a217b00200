"""Who may do what: roles of people, scopes of tokens, one table."""

from enum import StrEnum


class Role(StrEnum):
    """A member's role in a team; each one includes those before it."""

    VIEWER = "viewer"
    RESEARCHER = "researcher"
    OPERATOR = "operator"
    ADMIN = "admin"


class Scope(StrEnum):
    """What a token may be used for at most."""

    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"


class Permission(StrEnum):
    """Something a request wants to do."""

    VIEW = "view"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMINISTER = "administer"


RANK = {role: rank for rank, role in enumerate(Role)}

NEEDS: dict[Permission, tuple[Role, Scope]] = {
    Permission.VIEW: (Role.VIEWER, Scope.READ),
    Permission.SUBMIT: (Role.RESEARCHER, Scope.SUBMIT),
    Permission.OPERATE: (Role.OPERATOR, Scope.OPERATE),
    Permission.ADMINISTER: (Role.ADMIN, Scope.ADMIN),
}


def allows(role: Role | None, permission: Permission) -> bool:
    """Whether a role is enough for a permission; no role allows nothing."""
    return role is not None and RANK[role] >= RANK[NEEDS[permission][0]]


def scopes_allow(scopes: list[str], permission: Permission) -> bool:
    """Whether a token's scopes cover a permission; reading comes with every scope."""
    return permission is Permission.VIEW or NEEDS[permission][1].value in scopes
