"""`Idempotency-Key`: a POST that is sent again is answered again, not done again.

Three parts share a request: the middleware opens the transaction in which everything happens and
remembers a success in it; the gate, asked after sign-in and permission, finds an answer that is already
there. An advisory lock, held until commit, lets one of several equal requests through at a time.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from web.models import RememberedAnswer
from web.secrets import seal, unseal

HEADER = "Idempotency-Key"
KEY = re.compile(r"[\x21-\x7e]{1,255}")
KEPT = timedelta(hours=24)
REPEATED_HEADERS = ("Location", "ETag")


class InvalidKey(APIException):
    """The header holds something else than a key."""

    status_code = status.HTTP_400_BAD_REQUEST
    default_detail = f"{HEADER}: must be 1 to 255 visible ASCII characters"
    default_code = "invalid-header"


class KeyReused(APIException):
    """The key already stands for another body."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_detail = f"this {HEADER} was used with another body"
    default_code = "key-reused"


class StillUnderWay(APIException):
    """The first request with this key has not been answered yet."""

    status_code = status.HTTP_409_CONFLICT
    default_detail = f"the first request with this {HEADER} is still under way: ask again"
    default_code = "in-flight"
    retry_after_s = 1


class Replay(Exception):
    """The answer is already known."""

    def __init__(self, answer: RememberedAnswer, key: str) -> None:
        super().__init__("answered before")
        self.answer = answer
        self.key = key

    def response(self) -> Response:
        """Return the answer as it was given the first time."""
        body = json.loads(unseal(str(self.answer.body), self.key)) if self.answer.body else None
        headers = {**self.answer.headers, "Idempotent-Replayed": "true"}
        return Response(body, status=self.answer.status, headers=headers)


@dataclass(frozen=True)
class Pending:
    """A request that will be remembered if it succeeds."""

    user_id: Any
    key: str
    digest: str
    route: str
    body_sha256: str


class RememberAnswers:
    """Middleware: one transaction around a POST with a key, the answer remembered in it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Run the view of a POST with a key."""
        if request.method != "POST" or HEADER not in request.headers or not request.path.startswith("/api/"):
            return None
        with transaction.atomic():
            response: Any = view(request, *args, **kwargs)
            if hasattr(response, "render") and not response.is_rendered:
                response.render()
            pending: Pending | None = getattr(request, "pending_answer", None)
            if response.status_code >= 400:
                transaction.set_rollback(True)
            elif pending is not None:
                _remember(pending, response)
        answer: HttpResponseBase = response
        return answer


class AnswerGate(BasePermission):
    """Asked last: gives a known answer again, or notes that this one is to be remembered."""

    def has_permission(self, request: Request, view: Any) -> bool:
        key = request.headers.get(HEADER)
        if request.method != "POST" or key is None:
            return True
        if not KEY.fullmatch(key):
            raise InvalidKey
        plain = request._request
        body = hashlib.sha256(plain.body).hexdigest()
        digest = hashlib.sha256(key.encode()).hexdigest()
        pending = Pending(request.user.pk, key, digest, plain.get_full_path()[:300], body)
        if not _lock(pending):
            raise StillUnderWay
        _look_up(pending)
        plain.pending_answer = pending  # type: ignore[attr-defined]
        return True


def _lock(pending: Pending) -> bool:
    name = f"{pending.user_id}\0{pending.route}\0{pending.digest}"
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        return bool(cursor.fetchone()[0])


def _look_up(pending: Pending) -> None:
    mine = RememberedAnswer.objects.filter(user_id=pending.user_id)
    mine.filter(created_at__lt=timezone.now() - KEPT).delete()
    known = mine.filter(key=pending.digest, route=pending.route).first()
    if known is None:
        return
    if known.body_sha256 != pending.body_sha256:
        raise KeyReused
    raise Replay(known, pending.key)


def _remember(pending: Pending, response: Any) -> None:
    # Sealed, because the answer to a new token holds its secret, of which only a hash may be stored.
    body = seal(response.content.decode(), pending.key) if response.content else None
    RememberedAnswer.objects.create(
        user_id=pending.user_id,
        key=pending.digest,
        route=pending.route,
        body_sha256=pending.body_sha256,
        status=response.status_code,
        headers={name: response[name] for name in REPEATED_HEADERS if name in response},
        body=body,
    )
