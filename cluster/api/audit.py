"""The audit log: who did what. The journal itself knows no teams, so its addresses stand here."""

from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.caller import bound_team, teams_allowing, user_of
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, identifier, text
from cluster.api.view import ApiView
from cluster.core.keyset import read_integer
from cluster.core.roles import Permission
from journal.models import AuditEntry
from journal.queries import broken_audit_entry

NEWEST = Order("audit", (Column("number", read_integer, descending=True),))


class AuditAnswer(serializers.Serializer[AuditEntry]):
    """An entry of the audit log; its hash covers the entry and the hash before it."""

    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    action = serializers.CharField()
    target = serializers.CharField()
    team = serializers.UUIDField(allow_null=True)
    detail = serializers.DictField()
    previous_hash = serializers.CharField()
    hash = serializers.CharField()


class VerifyAnswer(serializers.Serializer[Any]):
    """Whether the whole chain holds."""

    intact = serializers.BooleanField()
    entries = serializers.IntegerField()
    broken_at = serializers.IntegerField(allow_null=True, help_text="number of the first altered entry")


def audit_answer(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as the API shows it."""
    return {
        "number": entry.number,
        "at": entry.at,
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "team": str(entry.team_id) if entry.team_id else None,
        "detail": entry.detail,
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def entries_for(request: Request) -> QuerySet[AuditEntry]:
    """Return what the caller may read: entries of teams they administer, and for a superuser all others."""
    teams = list(teams_allowing(request, Permission.ADMINISTER).values_list("pk", flat=True))
    seen = Q(team_id__in=teams)
    if user_of(request).is_superuser and bound_team(request) is None:
        seen |= Q(team_id__isnull=True)
    return AuditEntry.objects.filter(seen)


class Audit(ApiView):
    """The audit log."""

    needs = {"GET": Permission.ADMINISTER}
    parameters = {
        "GET": (
            text("action", "Only entries of this action, for example job.submit."),
            text("actor", "Only entries of this actor."),
            text("target", "Only entries about this, for example job:UUID."),
            identifier("team", "Only entries of this team."),
            LIMIT,
            CURSOR,
        )
    }

    @extend_schema(operation_id="listAudit", responses={200: page_of(AuditAnswer)})
    def get(self, request: Request) -> Response:
        """List audit entries, newest first."""
        rows = entries_for(request)
        for name in ("action", "actor", "target"):
            if self.query[name]:
                rows = rows.filter(**{name: self.query[name]})
        if self.query["team"]:
            rows = rows.filter(team_id=self.query["team"])
        return list_answer(request, rows, NEWEST, self.query, audit_answer)


class VerifyAudit(ApiView):
    """The proof that nobody has altered the log."""

    needs = {"GET": Permission.ADMINISTER}

    @extend_schema(operation_id="verifyAudit", responses={200: VerifyAnswer})
    def get(self, request: Request) -> Response:
        """Compute every hash of the chain anew."""
        broken = broken_audit_entry()
        return Response(
            {"intact": broken is None, "entries": AuditEntry.objects.count(), "broken_at": broken}
        )
