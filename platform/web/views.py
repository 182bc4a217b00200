"""Answers for what went wrong outside of a view: problems below /api/, pages elsewhere."""

from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views import csrf, defaults

from web.problems import INTERNAL, is_api, problem_response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """400, or 413 for a body over the limit."""
    too_big = isinstance(exception, RequestDataTooBig)
    if is_api(request):
        if too_big:
            return problem_response(413, "too-large", "a body may have at most 1 MB")
        return problem_response(
            400, "bad-request", "this request cannot be understood, or names an unknown host"
        )
    response = defaults.bad_request(request, exception)
    if too_big:
        response.status_code = 413
    return response


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """403."""
    if is_api(request):
        return problem_response(403, "not-allowed", str(exception) or "not allowed")
    return defaults.permission_denied(request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """403 for an unsafe request without the CSRF token."""
    if is_api(request):
        return problem_response(403, "csrf", reason)
    return csrf.csrf_failure(request, reason)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """404."""
    if is_api(request):
        return problem_response(404, "not-found", "there is no such address")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest, *args: Any) -> HttpResponse:
    """500; the log has it under the request's identifier."""
    if is_api(request):
        return problem_response(500, "internal", INTERNAL)
    return defaults.server_error(request)
