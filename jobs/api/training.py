"""What only training jobs have: faults on request."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.bodies import StrictBody
from cluster.api.caller import actor_of, demand
from cluster.api.view import ApiView
from cluster.core.roles import Permission
from jobs.api.bodies import describe_spec
from jobs.api.jobs import job_or_404
from jobs.core.states import FaultMode
from jobs.core.training.schema import spec_schema
from jobs.services.training import LARGEST_FACTOR, LONGEST_FAULT_S, inject_fault, injection_facts

describe_spec("training", spec_schema())


class FaultBody(StrictBody):
    """A fault: `slow` and `flap` (slow on and off) by a factor, `stop` kills, `stall` halts for a while."""

    mode = serializers.ChoiceField([mode.value for mode in FaultMode])
    rank = serializers.IntegerField(min_value=0, max_value=1_000_000)
    factor = serializers.FloatField(
        min_value=1.0, max_value=LARGEST_FACTOR, required=False, default=2.0, help_text="1 ends a slowdown"
    )
    seconds = serializers.FloatField(
        min_value=0.1,
        max_value=LONGEST_FAULT_S,
        required=False,
        allow_null=True,
        default=None,
        help_text="how long it lasts; null until the job ends",
    )


class FaultAnswer(serializers.Serializer[Any]):
    """A fault on its way to a rank."""

    id = serializers.UUIDField()
    job = serializers.UUIDField()
    mode = serializers.ChoiceField([mode.value for mode in FaultMode])
    rank = serializers.IntegerField()
    factor = serializers.FloatField()
    seconds = serializers.FloatField(allow_null=True)


class Inject(ApiView):
    """Faults on request, to see what comes of them."""

    needs = {"POST": Permission.OPERATE}

    @extend_schema(operation_id="injectFault", request=FaultBody, responses={202: FaultAnswer})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Slow down, halt or kill a rank of a running training job, really."""
        job = job_or_404(request, job_id)
        demand(request, Permission.OPERATE, job.team_id)
        body = FaultBody(data=request.data)
        body.is_valid(raise_exception=True)
        given = {**body.validated_data, "mode": FaultMode(body.validated_data["mode"])}
        injection = inject_fault(job_id=job.pk, actor=actor_of(request), **given)
        return Response(injection_facts(injection), status=202)
