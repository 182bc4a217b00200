"""The queue: who waits for what, why, and until when; holding it; its policy; what-if questions."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.caller import actor_of, demand, visible_teams
from cluster.api.conditions import etag, seen_version
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, some_of, text
from cluster.api.quotas import QUOTA_BODY
from cluster.api.view import ApiView
from cluster.core.bodies import known_fields, read_policy, read_preview
from cluster.core.errors import InvalidBody
from cluster.core.keyset import read_integer, read_uuid
from cluster.core.placement.rules import PLACEMENTS
from cluster.core.policies import LIVE, live_policy
from cluster.core.roles import Permission
from cluster.core.states import ClusterName, EntryState
from cluster.models import Coordinator
from cluster.queries import QueueReader, queue_entries
from cluster.services.live_state import rules_of
from cluster.services.previews import preview
from cluster.services.queue import coordinator_of, free_queue, hold_entry, hold_queue
from cluster.services.quotas import set_policy

CLUSTERS = [name.value for name in ClusterName]
PRESENT = [state.value for state in EntryState if state is not EntryState.ENDED]
# Simulated entries have ranks of their own; the kind of cluster is a filter, not a part of the order.
BY_RANK = Order("queue", (Column("rank", read_integer), Column("job_id", read_uuid)))
REASON_LENGTH = 300


class AheadAnswer(serializers.Serializer[Any]):
    """A job that is considered before this one and wants the same devices."""

    job = serializers.UUIDField(allow_null=True, help_text="null where it is another team's")
    name = serializers.CharField(allow_null=True)
    team = serializers.CharField(allow_null=True)
    devices = serializers.IntegerField()


class QueueAnswer(serializers.Serializer[Any]):
    """A job in the queue. Of another team's job only its place and its size are told."""

    id = serializers.UUIDField(allow_null=True)
    job = serializers.UUIDField(allow_null=True)
    kind = serializers.CharField()
    name = serializers.CharField(allow_null=True)
    team = serializers.CharField(allow_null=True)
    owner = serializers.CharField(allow_null=True)
    state = serializers.ChoiceField(PRESENT)
    is_simulated = serializers.BooleanField(help_text="it is a rehearsal on devices that are not there")
    order = serializers.IntegerField(help_text="place in the order in which jobs are considered")
    position = serializers.IntegerField(allow_null=True, help_text="place in line; null for one set aside")
    reason = serializers.CharField(help_text="the one reason that counts most, as a word")
    message = serializers.CharField(help_text="the reason as a sentence with its numbers")
    next_step = serializers.CharField(help_text="what would help")
    numbers = serializers.DictField()
    ahead = AheadAnswer(many=True)
    predicted_start = serializers.DateTimeField(allow_null=True, help_text="estimated")
    earliest_start = serializers.DateTimeField(allow_null=True, help_text="estimated")
    latest_start = serializers.DateTimeField(allow_null=True, help_text="estimated")
    devices = serializers.IntegerField(help_text="how many it asks for at most; 0 for all there are")
    milli = serializers.IntegerField(help_text="thousandths of each")
    elastic = serializers.BooleanField(help_text="it starts with one device and takes more")
    kinds = serializers.ListField(child=serializers.CharField())
    pin = serializers.CharField()
    job_class = serializers.IntegerField()
    is_held = serializers.BooleanField()
    evictions = serializers.IntegerField(help_text="how often it had to give way")
    submitted_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    is_sharing = serializers.BooleanField(help_text="another job runs on the same devices")
    holds = serializers.ListField(child=serializers.CharField(), help_text="devices that it has now")


class RulesAnswer(serializers.Serializer[Any]):
    """The rules that go with a policy."""

    min_runtime_s = serializers.FloatField(help_text="how long a run is safe from preemption")
    most_evictions = serializers.IntegerField(help_text="how often a job gives way at most")
    bounded_wait_s = serializers.FloatField(help_text="after so long a wait nobody passes a job any more")
    preemption_attempts = serializers.IntegerField(help_text="searches for victims per decision")
    placement = serializers.CharField()


class KnownPolicy(serializers.Serializer[Any]):
    """A policy that can be chosen."""

    name = serializers.CharField()
    title = serializers.CharField()


class PolicyAnswer(serializers.Serializer[Any]):
    """A queue's policy and rules, and whether it is held."""

    cluster = serializers.ChoiceField(CLUSTERS)
    policy = serializers.CharField()
    rules = RulesAnswer()
    held_reason = serializers.CharField(help_text="why nothing starts; empty where it does")
    decided_at = serializers.DateTimeField(allow_null=True)
    epoch = serializers.IntegerField(help_text="grows with every tick of the coordinator")
    clock_speed = serializers.FloatField()
    version = serializers.IntegerField()
    known = KnownPolicy(many=True)


class PlayAnswer(serializers.Serializer[Any]):
    """The queue played forward. Everything in it is simulated."""

    policy = serializers.CharField()
    mean_wait_s = serializers.FloatField(allow_null=True)
    mean_jct_s = serializers.FloatField(allow_null=True)
    makespan_s = serializers.FloatField()
    started = serializers.IntegerField()
    evictions = serializers.IntegerField()
    stranded = serializers.IntegerField()
    wait_s = serializers.DictField(help_text="quantiles")
    jct_s = serializers.DictField(help_text="quantiles")
    device_s = serializers.DictField(help_text="by team; `others` are teams that the caller does not see")


class MovedAnswer(serializers.Serializer[Any]):
    """A job that would start at another time; negative is earlier."""

    job = serializers.UUIDField()
    name = serializers.CharField()
    moves_s = serializers.FloatField()


class ComparedAnswer(PlayAnswer):
    """A play with what it changes against the queue as it is."""

    moved = MovedAnswer(many=True)


class PreviewAnswer(serializers.Serializer[Any]):
    """What would be, beside what is."""

    before = PlayAnswer()
    after = ComparedAnswer(many=True)
    left_out = serializers.IntegerField(help_text="jobs at the end of the queue that were not played")


POLICY_BODY = {
    "type": "object",
    "properties": {
        "policy": {"enum": list(LIVE)},
        "rules": {
            "type": "object",
            "properties": {
                "min_runtime_s": {"type": "number", "minimum": 0, "maximum": 1e9},
                "most_evictions": {"type": "integer", "minimum": 0, "maximum": 1000000000},
                "bounded_wait_s": {"type": "number", "minimum": 0, "maximum": 1e9},
                "preemption_attempts": {"type": "integer", "minimum": 0, "maximum": 1000000000},
                "placement": {"enum": list(PLACEMENTS)},
            },
            "additionalProperties": False,
        },
    },
    "required": ["policy"],
    "additionalProperties": False,
}
HOLD_BODY = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": REASON_LENGTH},
        "cluster": {"enum": CLUSTERS},
        "job": {"type": "string", "format": "uuid", "description": "only this job instead of the queue"},
    },
    "additionalProperties": False,
}
CLUSTER = some_of("cluster", "Real devices, or the simulated ones of a rehearsal.", CLUSTERS)


def chosen_cluster(query: dict[str, Any]) -> ClusterName:
    """Return which queue a request is about; the real one where it does not say."""
    return ClusterName((query["cluster"] or [ClusterName.REAL.value])[0])


class Queue(ApiView):
    """Everybody's jobs in their order."""

    parameters = {
        "GET": (
            some_of("state", "Only jobs in these states; the default is waiting.", PRESENT),
            CLUSTER,
            text("kind", "Only jobs that may use devices of this kind."),
            text("team", "Only jobs of the team with this slug."),
            LIMIT,
            CURSOR,
        )
    }

    @extend_schema(operation_id="listQueue", responses={200: page_of(QueueAnswer)})
    def get(self, request: Request) -> Response:
        """List the queue in the order in which jobs are considered, with why they wait and until when."""
        rows = queue_entries(states=self.query["state"] or [EntryState.WAITING.value])
        if self.query["cluster"]:
            rows = rows.filter(is_simulated__in=[c == ClusterName.REHEARSAL for c in self.query["cluster"]])
        if self.query["team"]:
            rows = rows.filter(team__slug=self.query["team"], team__in=visible_teams(request))
        if self.query["kind"]:
            rows = rows.filter(demand__kinds__contains=self.query["kind"]) | rows.filter(demand__kinds=[])
        reader = QueueReader(set(visible_teams(request).values_list("pk", flat=True)))
        return list_answer(request, rows, BY_RANK, self.query, reader.row)


def hold_body(data: Any) -> dict[str, Any]:
    """Read the body of hold and release."""
    faults: list[tuple[str, str]] = []
    given = dict(known_fields(data or {}, ("reason", "cluster", "job"), "", faults))
    reason = given.get("reason", "")
    if not isinstance(reason, str) or len(reason) > REASON_LENGTH or "\0" in reason:
        faults.append(("/reason", f"must be a text of at most {REASON_LENGTH} characters"))
    if given.get("cluster") not in (None, *CLUSTERS):
        faults.append(("/cluster", f"must be one of {', '.join(CLUSTERS)}"))
    if given.get("job") is not None:
        try:
            given["job"] = UUID(str(given["job"]))
        except ValueError:
            faults.append(("/job", "must be the identifier of a job"))
    if faults:
        raise InvalidBody(faults)
    return given


class HoldAnswer(serializers.Serializer[Any]):
    """What is held now."""

    held = serializers.BooleanField()
    reason = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    job = serializers.UUIDField(allow_null=True)


class _HoldMove(ApiView):
    needs = {"POST": Permission.OPERATE}
    held: bool

    def move(self, request: Request) -> Response:
        """Hold or release the queue, or one job of it."""
        body = hold_body(request.data)
        reason, actor = body.get("reason", ""), actor_of(request)
        if body.get("job") is not None:
            return self._move_job(request, body["job"], reason, actor)
        names = [ClusterName(body["cluster"])] if body.get("cluster") else list(ClusterName)
        for name in names:
            if self.held:
                row = hold_queue(name=name, actor=actor, reason=reason)
            else:
                row = free_queue(name=name, actor=actor)
        answer = {"held": self.held, "reason": row.held_reason, "clusters": names, "job": None}
        return Response(answer)

    def _move_job(self, request: Request, job_id: UUID, reason: str, actor: str) -> Response:
        present = queue_entries(states=PRESENT).filter(team__in=visible_teams(request))
        entry = present.filter(pk=job_id).first()
        if entry is None:
            raise InvalidBody([("/job", "there is no such job in the queue")])
        demand(request, Permission.OPERATE, entry.team_id)
        hold_entry(job_id=job_id, actor=actor, reason=reason, held=self.held)
        return Response({"held": self.held, "reason": reason, "clusters": [], "job": str(job_id)})


class Hold(_HoldMove):
    """Starting nothing more; what runs goes on."""

    held = True

    @extend_schema(
        operation_id="holdQueue", request={"application/json": HOLD_BODY}, responses={200: HoldAnswer}
    )
    def post(self, request: Request) -> Response:
        """Hold the queue, or with `job` one job: nothing of it starts until it is released."""
        return self.move(request)


class Release(_HoldMove):
    """Going on."""

    held = False

    @extend_schema(
        operation_id="releaseQueue", request={"application/json": HOLD_BODY}, responses={200: HoldAnswer}
    )
    def post(self, request: Request) -> Response:
        """Release the queue, or with `job` one job."""
        return self.move(request)


def policy_answer(row: Coordinator) -> dict[str, Any]:
    """Return a queue's policy as the API shows it."""
    rules = rules_of(row)
    return {
        "cluster": row.name,
        "policy": row.policy,
        "rules": asdict(rules),
        "held_reason": row.held_reason,
        "decided_at": row.decided_at,
        "epoch": row.epoch,
        "clock_speed": row.clock_speed,
        "version": row.version,
        "known": [{"name": name, "title": live_policy(name, 1).title} for name in LIVE],
    }


class QueuePolicy(ApiView):
    """By which policy the queue is ordered."""

    needs = {"PUT": Permission.OPERATE}
    parameters = {"GET": (CLUSTER,), "PUT": (CLUSTER,)}

    @extend_schema(operation_id="readPolicy", responses={200: PolicyAnswer})
    def get(self, request: Request) -> Response:
        """Read the policy, its rules, and which others there are."""
        row = coordinator_of(chosen_cluster(self.query))
        return Response(policy_answer(row), headers={"ETag": etag(row.version)})

    @extend_schema(
        operation_id="setPolicy", request={"application/json": POLICY_BODY}, responses={200: PolicyAnswer}
    )
    def put(self, request: Request) -> Response:
        """Choose a policy. The next tick decides by it; what runs goes on."""
        name = chosen_cluster(self.query)
        seen = seen_version(request, coordinator_of(name).version)
        row = set_policy(
            name=name, body=read_policy(request.data), actor=actor_of(request), seen_version=seen
        )
        return Response(policy_answer(row), headers={"ETag": etag(row.version)})


PREVIEW_BODY = {
    "type": "object",
    "properties": {
        "policies": {"type": "array", "items": {"enum": list(LIVE)}, "maxItems": 6},
        "quotas": {
            "type": "object",
            "additionalProperties": QUOTA_BODY,
            "description": "slug of a team -> its quota",
        },
        "without_nodes": {"type": "array", "items": {"type": "string"}},
    },
    "additionalProperties": False,
}


def play_answer(play: dict[str, Any], slugs: set[str]) -> dict[str, Any]:
    """Return a play without what belongs to teams that the caller does not see."""
    device_s: dict[str, float] = {}
    for team, seconds in play["device_s"].items():
        name = team if team in slugs else "others"
        device_s[name] = device_s.get(name, 0.0) + seconds
    plain = ("policy", "mean_wait_s", "mean_jct_s", "makespan_s", "started", "evictions", "wait_s", "jct_s")
    return {name: play[name] for name in plain} | {"stranded": len(play["stranded"]), "device_s": device_s}


class Preview(ApiView):
    """What if."""

    needs = {"POST": Permission.OPERATE}
    parameters = {"POST": (CLUSTER,)}

    @extend_schema(
        operation_id="previewQueue",
        request={"application/json": PREVIEW_BODY},
        responses={200: PreviewAnswer},
    )
    def post(self, request: Request) -> Response:
        """Play the live queue forward under other policies, other quotas or without some nodes.

        Nothing is changed. Run times are what is believed now, nothing new is submitted, and every figure is
        simulated.
        """
        body = read_preview(request.data)
        plays = preview(chosen_cluster(self.query), body)
        slugs = set(visible_teams(request).values_list("slug", flat=True))
        mine = queue_entries(states=PRESENT).filter(team__in=visible_teams(request))
        names = {str(job): label for job, label in mine.values_list("job_id", "label")}
        after = []
        for play, moved in zip(plays.after, plays.moved, strict=True):
            rows = [
                {"job": m["job"], "name": names[m["job"]], "moves_s": m["after_s"] - m["before_s"]}
                for m in moved
                if m["job"] in names
            ]
            after.append({**play_answer(play, slugs), "moved": rows})
        before = play_answer(plays.before, slugs)
        return Response({"before": before, "after": after, "left_out": plays.left_out})
