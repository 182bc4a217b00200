"""Whether a training job lends its bubbles now, and the switch."""

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.bodies import StrictBody
from cluster.api.caller import actor_of, demand, user_of
from cluster.api.view import ApiView
from cluster.core.roles import Permission
from jobs.api.jobs import job_or_404
from jobs.models import Job
from tuning.queries.bubbles import Bubbles, bubbles_of
from tuning.services.bubbles import switch_lending


class LendingBody(StrictBody):
    """What the switch shall say."""

    lending = serializers.BooleanField(help_text="false stops it at once, true allows it again")
    reason = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse truth values that are none as well."""
        attrs = super().validate(attrs)
        if not isinstance(self.initial_data["lending"], bool):
            raise serializers.ValidationError({"lending": "must be true or false"})
        return attrs


class SlowdownAnswer(serializers.Serializer[Any]):
    """Iteration time with guests over that without, minus one, with a 95 % interval."""

    value = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()
    lent = serializers.IntegerField(help_text="iterations with guests")
    controls = serializers.IntegerField(help_text="iterations without")


class LendingAnswer(serializers.Serializer[Any]):
    """Whether a job's bubbles may be used, by whom it was said, and what has come of them."""

    job = serializers.UUIDField()
    lending = serializers.BooleanField(help_text="whether its bubbles may be used now")
    status = serializers.ChoiceField(["never", "off", "rests", "ended", "unused", "used"])
    reason = serializers.CharField(allow_blank=True)
    actor = serializers.CharField(allow_blank=True, help_text="who used the switch last; empty for nobody")
    rests_until = serializers.DateTimeField(allow_null=True, help_text="after an automatic stop")
    limit = serializers.FloatField(help_text="the slowdown at which it rests")
    slowdown = SlowdownAnswer(allow_null=True)
    recovered_s = serializers.FloatField(help_text="device seconds that trials got; measured")
    waited_s = serializers.FloatField(help_text="device seconds that the job waited meanwhile; measured")
    worth_s = serializers.FloatField(help_text="device seconds that the trials' work takes alone; estimated")


def lending_answer(job: Job, found: Bubbles) -> dict[str, Any]:
    """Return what is said of a job's lending."""
    row = found.lending
    return {
        "job": str(job.pk),
        "lending": found.status in ("used", "unused"),
        "status": found.status,
        "reason": row.reason if row else "",
        "actor": row.actor if row else "",
        "rests_until": row.rests_until.isoformat() if row and row.rests_until else None,
        "limit": found.limit,
        "slowdown": found.slowdown,
        "recovered_s": found.recovered_s,
        "waited_s": found.waited_s,
        "worth_s": found.worth_s,
    }


class JobLending(ApiView):
    """The lending of a training job's bubbles."""

    needs = {"POST": Permission.OPERATE}

    @extend_schema(operation_id="getLending", responses=LendingAnswer)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Say whether the job's bubbles may be used, and what came of them."""
        job = job_or_404(request, job_id)
        return Response(lending_answer(job, bubbles_of(job, user_of(request), timezone.now())))

    @extend_schema(operation_id="switchLending", request=LendingBody, responses=LendingAnswer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Stop lending at once, or allow it again."""
        job = job_or_404(request, job_id)
        demand(request, Permission.OPERATE, job.team_id)
        body = LendingBody(data=request.data)
        body.is_valid(raise_exception=True)
        switch_lending(job_id=job.pk, actor=actor_of(request), **body.validated_data)
        return Response(lending_answer(job, bubbles_of(job, user_of(request), timezone.now())))
