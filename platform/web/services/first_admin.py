"""The first person of a new installation."""

from django.db import connection, transaction

from cluster.core.roles import Role
from cluster.models import Membership, Team, User
from journal.services import audit

FIRST_USER, FIRST_TEAM = "admin", "demo"


@transaction.atomic
def first_admin() -> User:
    """Return the oldest active administrator; on a new installation create `admin` and the team `demo`."""
    with connection.cursor() as cursor:  # two first starts at once make one
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('forebay.first_admin'))")
    user = User.objects.filter(is_superuser=True, is_active=True).order_by("date_joined").first()
    if user is None:
        user = User(username=FIRST_USER, is_superuser=True, is_staff=True)
        user.set_unusable_password()
        user.save()
        audit(actor="installation", action="user.create", target=f"user:{FIRST_USER}")
    if not Team.objects.exists():
        team = Team.objects.create(slug=FIRST_TEAM, name="Demo")
        Membership.objects.create(team=team, user=user, role=Role.ADMIN)
        audit(actor="installation", action="team.create", target=f"team:{FIRST_TEAM}", team_id=team.pk)
    return user
