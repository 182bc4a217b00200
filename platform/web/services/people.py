"""Who belongs to a team: its admins let people in and give them a role; a link signs them in at first."""

from datetime import timedelta
from uuid import UUID

from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import transaction

from cluster.core.roles import Permission, Role, allows
from cluster.models import Membership, Team, User
from cluster.queries import role_in, teams_where
from journal.services import audit
from web.errors import InvalidPerson, NotGranted
from web.services.one_time import LOGIN, issue_secret

# Long enough to send it to somebody who is asleep.
LINK_LIFE = timedelta(hours=24)
LONGEST_NAME = 150


@transaction.atomic
def let_in(*, actor: User, team: Team, name: str, role: str) -> Membership:
    """Give a person a role in a team; a name that nobody has yet becomes a new person.

    Raises InvalidPerson, or NotGranted where the actor does not administer the team.
    """
    _check_admin(actor, team)
    _check(name, role)
    user = User.objects.filter(username=name).first()
    if user is None:
        user = User(username=name)
        user.set_unusable_password()
        user.save()
        audit(actor=actor.get_username(), action="user.create", target=f"user:{name}", team_id=team.pk)
    if Membership.objects.filter(team=team, user=user).exists():
        raise InvalidPerson([("/name", f"{name} is a member of {team.slug} already")])
    row = Membership.objects.create(team=team, user=user, role=role)
    _tell(actor, row, "member.add")
    return row


@transaction.atomic
def change_role(*, actor: User, team: Team, user_id: UUID, role: str) -> Membership:
    """Give a member another role; nobody changes their own, so that a team keeps an admin."""
    row = _other_member(actor, team, user_id)
    _check(row.user.username, role)
    if row.role != role:
        row.role = role
        row.save(update_fields=["role"])
        _tell(actor, row, "member.change")
    return row


@transaction.atomic
def let_out(*, actor: User, team: Team, user_id: UUID) -> Membership:
    """End a membership; the person stays, and so does what they did."""
    row = _other_member(actor, team, user_id)
    _tell(actor, row, "member.remove")
    row.delete()
    return row


@transaction.atomic
def sign_in_secret(*, actor: User, user: User) -> str:
    """Return the secret of a link that signs a person in once.

    It is as good as their password: who makes it must administer all their teams, and is in the audit log.
    """
    theirs = Membership.objects.filter(user=user).values("team_id")
    foreign = Membership.objects.filter(user=user).exclude(team__in=teams_where(actor, Permission.ADMINISTER))
    if not actor.is_superuser and (user.is_superuser or foreign.exists() or not theirs.exists()):
        raise NotGranted(f"only who administers all teams of {user.get_username()} makes a link for them")
    audit(actor=actor.get_username(), action="user.link", target=f"user:{user.get_username()}")
    return issue_secret(purpose=LOGIN, user=user, life=LINK_LIFE)


def _check_admin(actor: User, team: Team) -> None:
    if not allows(role_in(actor, team.pk), Permission.ADMINISTER):
        raise NotGranted(f"only an admin of {team.slug} decides who belongs to it")


def _other_member(actor: User, team: Team, user_id: UUID) -> Membership:
    _check_admin(actor, team)
    if actor.pk == user_id:
        raise NotGranted("nobody changes their own membership: another admin does")
    return (
        Membership.objects.select_for_update(of=("self",))
        .select_related("user")
        .get(team=team, user_id=user_id)
    )


def _check(name: str, role: str) -> None:
    faults = []
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError:
        faults.append(("/name", "may hold letters, digits and @ . + - _"))
    if not name or len(name) > LONGEST_NAME:
        faults = [("/name", f"must have 1 to {LONGEST_NAME} characters")]
    if role not in set(Role):
        faults.append(("/role", f"choose one of {', '.join(Role)}"))
    if faults:
        raise InvalidPerson(faults)


def _tell(actor: User, row: Membership, action: str) -> None:
    target = f"user:{row.user.get_username()}"
    audit(actor=actor.get_username(), action=action, target=target, team_id=row.team_id,
          detail={"role": row.role})  # fmt: skip
