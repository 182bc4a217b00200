"""Reading what concerns the site itself."""

from django.db.models import Q, QuerySet

from cluster.core.roles import Permission
from cluster.models import User
from cluster.queries import teams_where
from journal.models import AuditEntry


def audit_entries_for(user: User) -> QuerySet[AuditEntry]:
    """Return the entries of teams a person administers, and for a superuser those of no team."""
    seen = Q(team_id__in=list(teams_where(user, Permission.ADMINISTER).values_list("pk", flat=True)))
    if user.is_superuser:
        seen |= Q(team_id__isnull=True)
    return AuditEntry.objects.filter(seen)
