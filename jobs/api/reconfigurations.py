"""Plans for training jobs: what would change, what it would bring, and the decision on it."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.bodies import StrictBody
from cluster.api.caller import actor_of, demand, user_of
from cluster.api.conditions import etag, seen_version
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, identifier, some_of
from cluster.api.view import ApiView
from cluster.core.keyset import read_time, read_uuid
from cluster.core.roles import Permission
from jobs.api.jobs import jobs_of
from jobs.core.states import ReconfigurationKind, ReconfigurationState
from jobs.models import Reconfiguration
from jobs.services import reconfigurations

NEWEST = Order(
    "reconfigurations",
    (Column("created_at", read_time, descending=True), Column("id", read_uuid, descending=True)),
)


class ReconfigurationAnswer(serializers.Serializer[Reconfiguration]):
    """A planned change of a training job's layout. Times are seconds, memory is bytes."""

    id = serializers.UUIDField()
    job = serializers.UUIDField()
    verdict = serializers.UUIDField(allow_null=True, help_text="the verdict that it answers to")
    kind = serializers.ChoiceField([k.value for k in ReconfigurationKind])
    state = serializers.ChoiceField([s.value for s in ReconfigurationState])
    reason = serializers.CharField(help_text="why it is in its state; may be empty")
    epoch = serializers.IntegerField(help_text="the epoch of the job that it was planned for")
    before = serializers.DictField(help_text="the layout that it starts from")
    plan = serializers.DictField(help_text="the layout that it leads to")
    plan_digest = serializers.CharField()
    alternatives = serializers.ListField(child=serializers.DictField())
    baseline_iteration_s = serializers.FloatField(allow_null=True, help_text="estimated without any change")
    predicted_iteration_s = serializers.FloatField(help_text="estimated with the plan")
    predicted_pause_s = serializers.FloatField(help_text="estimated")
    moved_bytes = serializers.IntegerField()
    needs_checkpoint = serializers.BooleanField(help_text="some state is on no living device")
    memory = serializers.ListField(
        child=serializers.DictField(), help_text="per rank: before, after, available"
    )
    facts = serializers.DictField(help_text="lower bound, gap, speeds, calibration")
    requester = serializers.CharField()
    approver = serializers.CharField(allow_null=True)
    by_policy = serializers.BooleanField(help_text="approved by the job's policy, by nobody")
    comment = serializers.CharField()
    break_glass = serializers.CharField(help_text="why the requester approved alone; may be empty")
    outcome = serializers.DictField(help_text="measured: phases, pause and iteration time")
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


SAME = (
    "kind", "state", "reason", "epoch", "before", "plan", "plan_digest", "alternatives",
    "baseline_iteration_s", "predicted_iteration_s", "predicted_pause_s", "moved_bytes", "needs_checkpoint",
    "memory", "facts", "by_policy", "comment", "break_glass", "outcome", "version", "created_at",
    "expires_at", "decided_at", "started_at", "ended_at",
)  # fmt: skip


def reconfiguration_answer(row: Reconfiguration) -> dict[str, Any]:
    """Return a reconfiguration as the API shows it."""
    return {
        "id": str(row.pk),
        "job": str(row.job_id),
        "verdict": str(row.verdict_id) if row.verdict_id else None,
        "requester": row.requester.get_username(),
        "approver": row.approver.get_username() if row.approver else None,
        **{name: getattr(row, name) for name in SAME},
    }


def reconfigurations_of(request: Request) -> QuerySet[Reconfiguration]:
    """Return the reconfigurations of jobs that the caller may see."""
    jobs = jobs_of(request).select_related(None)
    return Reconfiguration.objects.filter(job__in=jobs).select_related("requester", "approver")


class Reconfigurations(ApiView):
    """Plans for the caller's training jobs."""

    parameters = {
        "GET": (
            some_of("state", "Only reconfigurations in these states.", ReconfigurationState),
            some_of("kind", "Only reconfigurations of these kinds.", ReconfigurationKind),
            identifier("job", "Only reconfigurations of this job."),
            identifier("verdict", "Only answers to this verdict."),
            LIMIT,
            CURSOR,
        )
    }

    @extend_schema(operation_id="listReconfigurations", responses={200: page_of(ReconfigurationAnswer)})
    def get(self, request: Request) -> Response:
        """List reconfigurations, newest first."""
        rows = reconfigurations_of(request)
        fields = {"state": "state__in", "kind": "kind__in", "job": "job_id", "verdict": "verdict_id"}
        for name, lookup in fields.items():
            if self.query[name]:
                rows = rows.filter(**{lookup: self.query[name]})
        return list_answer(request, rows, NEWEST, self.query, reconfiguration_answer)


class OneReconfiguration(ApiView):
    """One plan."""

    @extend_schema(operation_id="readReconfiguration", responses={200: ReconfigurationAnswer})
    def get(self, request: Request, reconfiguration_id: UUID) -> Response:
        """Read a reconfiguration."""
        return answer(get_object_or_404(reconfigurations_of(request), pk=reconfiguration_id))


class CommentBody(StrictBody):
    """Why it is decided like that."""

    knows = "there is only"

    comment = serializers.CharField(max_length=1000, required=False, allow_blank=True)


class ApprovalBody(CommentBody):
    """Why it is approved, and why alone where the requester approves."""

    break_glass = serializers.CharField(
        max_length=1000,
        required=False,
        allow_blank=True,
        help_text="an admin who asked for the plan says here why nobody else can approve it",
    )


class Decision(ApiView):
    """An admin's word on a plan."""

    needs = {"POST": Permission.ADMINISTER}

    def decide(
        self, request: Request, reconfiguration_id: UUID, body: type[CommentBody], decision: Any
    ) -> Response:
        """Decide on a reconfiguration that the caller has seen."""
        row = get_object_or_404(reconfigurations_of(request).select_related("job"), pk=reconfiguration_id)
        demand(request, Permission.ADMINISTER, row.job.team_id)
        words = body(data=request.data)
        words.is_valid(raise_exception=True)
        seen = seen_version(request, row.version, required=True)
        decision(
            reconfiguration_id=row.pk,
            approver=user_of(request),
            actor=actor_of(request),
            seen_version=seen,
            **words.validated_data,
        )
        return answer(reconfigurations_of(request).get(pk=row.pk))


class Approve(Decision):
    """Letting a plan through."""

    @extend_schema(
        operation_id="approveReconfiguration", request=ApprovalBody, responses={200: ReconfigurationAnswer}
    )
    def post(self, request: Request, reconfiguration_id: UUID) -> Response:
        """Approve a plan; `If-Match` says which version of it. The job's driver executes it."""
        return self.decide(request, reconfiguration_id, ApprovalBody, reconfigurations.approve)


class Reject(Decision):
    """Turning a plan down."""

    @extend_schema(
        operation_id="rejectReconfiguration", request=CommentBody, responses={200: ReconfigurationAnswer}
    )
    def post(self, request: Request, reconfiguration_id: UUID) -> Response:
        """Reject a plan; `If-Match` says which version of it. The job stays as it is."""
        return self.decide(request, reconfiguration_id, CommentBody, reconfigurations.reject)


def answer(row: Reconfiguration) -> Response:
    """Return the answer about one reconfiguration, with its version as entity tag."""
    return Response(reconfiguration_answer(row), headers={"ETag": etag(row.version)})
