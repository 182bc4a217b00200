"""Errors as `application/problem+json` (RFC 9457): translated here and nowhere else."""

import http
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from cluster.core.errors import ClusterError, IllegalDeviceMove, InvalidBody, StaleRow
from cluster.core.keyset import InvalidQuery
from jobs.core.errors import (
    IllegalMove,
    IllegalReconfiguration,
    InvalidSpec,
    JobError,
    MayNotDecide,
    OwnRequest,
    StaleVersion,
)
from telemetry.core.errors import InvalidWebhook
from web.context import request_id
from web.errors import InvalidToken, NotGranted
from web.idempotency import Replay

log = structlog.get_logger(__name__)
CONTENT_TYPE = "application/problem+json"
TYPE = "urn:forebay:problem:"
INTERNAL = "something went wrong here; the log has it under `instance`"

# Exception -> (status, last part of `type`).
DOMAIN: dict[type[Exception], tuple[int, str]] = {
    InvalidQuery: (400, "invalid-query"),
    InvalidSpec: (400, "invalid-body"),
    InvalidBody: (400, "invalid-body"),
    InvalidToken: (400, "invalid-body"),
    InvalidWebhook: (400, "invalid-body"),
    NotGranted: (403, "not-allowed"),
    IllegalMove: (409, "illegal-move"),
    IllegalDeviceMove: (409, "illegal-move"),
    StaleVersion: (412, "stale-version"),
    StaleRow: (412, "stale-version"),
    MayNotDecide: (403, "not-allowed"),
    OwnRequest: (403, "own-request"),
    IllegalReconfiguration: (409, "illegal-move"),
    JobError: (409, "conflict"),
    ClusterError: (409, "conflict"),
    Http404: (404, "not-found"),
    PermissionDenied: (403, "not-allowed"),
    RequestDataTooBig: (413, "too-large"),
}
# DRF's codes in our words.
CODES = {
    "not_authenticated": "not-signed-in",
    "authentication_failed": "not-signed-in",
    "permission_denied": "not-allowed",
    "not_found": "not-found",
    "method_not_allowed": "method-not-allowed",
    "not_acceptable": "not-acceptable",
    "unsupported_media_type": "unsupported-media-type",
    "throttled": "too-many-requests",
    "parse_error": "invalid-body",
    "invalid": "invalid-body",
}


def problem(
    status: int, kind: str, detail: str, *, errors: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    """Return the body of a problem."""
    body: dict[str, Any] = {
        "type": TYPE + kind,
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": f"urn:forebay:request:{request_id()}",
    }
    return body if errors is None else {**body, "errors": errors}


def problem_response(status: int, kind: str, detail: str) -> JsonResponse:
    """Return a problem outside of DRF."""
    return JsonResponse(problem(status, kind, detail), status=status, content_type=CONTENT_TYPE)


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """Turn an exception of a view into an answer; what nobody expected is logged and becomes a 500."""
    if isinstance(error, Replay):
        return error.response()
    set_rollback()
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    for kind, (status, name) in DOMAIN.items():
        if isinstance(error, kind):
            detail = str(error)
            if status == 404 and (not detail or detail.endswith("matches the given query.")):
                detail = "there is no such thing, or it belongs to a team you are not in"
            return _answer(problem(status, name, detail or "not allowed", errors=_errors(error)))
    if isinstance(error, OperationalError | InterfaceError):
        log.error("database away", error=str(error))
        return _answer(problem(503, "unavailable", "the database is away for a moment"), {"Retry-After": "2"})
    log.exception("request failed", path=context["request"].path)
    return _answer(problem(500, "internal", INTERNAL))


def _answer(body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(body, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


def _errors(error: Exception) -> list[dict[str, str]] | None:
    if isinstance(error, InvalidSpec | InvalidBody | InvalidToken | InvalidWebhook):
        return [{"pointer": pointer, "detail": sentence} for pointer, sentence in error.faults]
    if isinstance(error, InvalidQuery):
        return [{"parameter": error.parameter, "detail": error.rule}]
    return None


def _of_framework(error: exceptions.APIException) -> Response:
    headers: dict[str, str] = {}
    if authenticate := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = authenticate
    if (wait := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    if allowed := getattr(error, "retry_after_s", None):
        headers["Retry-After"] = str(allowed)
    code = error.get_codes()
    if isinstance(error, exceptions.ValidationError):
        faults = list(_faults(error.detail, ""))
        detail = "; ".join(f"{pointer or '/'}: {sentence}" for pointer, sentence in faults)
        rows = [{"pointer": pointer, "detail": sentence} for pointer, sentence in faults]
        return _answer(problem(error.status_code, "invalid-body", detail, errors=rows), headers)
    name = CODES.get(code, code) if isinstance(code, str) else "error"
    return _answer(problem(error.status_code, name, str(error.detail)), headers)


def _faults(detail: Any, pointer: str) -> Any:
    if isinstance(detail, dict):
        for key, value in detail.items():
            yield from _faults(value, pointer if key == "non_field_errors" else f"{pointer}/{key}")
    elif isinstance(detail, list):
        for index, value in enumerate(detail):
            nested = isinstance(value, dict | list)
            yield from _faults(value, f"{pointer}/{index}" if nested else pointer)
    else:
        yield pointer, str(detail)


def is_api(request: HttpRequest) -> bool:
    """Whether a request is answered with problems rather than pages."""
    return request.path.startswith("/api/") or request.path in {"/livez", "/readyz", "/metrics"}


def unknown_address(request: HttpRequest) -> HttpResponse:
    """Answer for addresses below /api/ that do not exist."""
    return problem_response(404, "not-found", "there is no such address")
