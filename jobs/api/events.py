"""A job's events, for programs that do not hold a WebSocket open."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.lists import next_url, page_of
from cluster.api.query import LIMIT, whole
from cluster.api.view import ApiView
from cluster.core.keyset import LARGEST_INTEGER
from jobs.api.jobs import job_or_404
from journal.models import Event
from journal.queries import events_after, window_of

AFTER = whole("after", "Only events after this sequence number.", 0, LARGEST_INTEGER, 0)
CURSOR = whole("cursor", "The same as `after`, so that this list pages like every other.", 0, LARGEST_INTEGER)


class EventAnswer(serializers.Serializer[Any]):
    """Something that happened, numbered without gaps within its stream."""

    stream = serializers.CharField()
    seq = serializers.IntegerField()
    kind = serializers.CharField()
    at = serializers.DateTimeField()
    data = serializers.DictField()  # type: ignore[assignment]  # the word stands in the contract


def event_answer(event: Event) -> dict[str, Any]:
    """Return an event as the API and the WebSocket show it."""
    return {
        "stream": event.stream_id,
        "seq": event.seq,
        "kind": event.kind,
        "at": event.at,
        "data": event.data,
    }


class JobEvents(ApiView):
    """The event log of a job."""

    parameters = {"GET": (AFTER, CURSOR, LIMIT)}

    @extend_schema(
        operation_id="listJobEvents",
        responses={
            200: page_of(
                EventAnswer,
                first_seq=serializers.IntegerField(help_text="oldest sequence number still kept"),
                last_seq=serializers.IntegerField(help_text="newest sequence number"),
                reset=serializers.BooleanField(
                    help_text="events after the asked number are gone or never were: read the job anew"
                ),
            )
        },
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the events of a job in order."""
        job = job_or_404(request, job_id)
        after: int = self.query["after"] if self.query["cursor"] is None else self.query["cursor"]
        window, limit = window_of(job.stream), self.query["limit"]
        events = events_after(job.stream, after, limit + 1)
        more = len(events) > limit
        items = [event_answer(event) for event in events[:limit]]
        following = next_url(request, after=items[-1]["seq"], cursor=items[-1]["seq"]) if more else None
        return Response(
            {
                "items": items,
                "next": following,
                **window._asdict(),
                "reset": not window.can_resume(after),
            }
        )
