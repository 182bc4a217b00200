"""What happens to every request: an identifier, a log line, figures, and no orders from other sites."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from web.context import begin_request
from web.metrics import REQUEST_SECONDS, REQUESTS
from web.problems import is_api, problem_response

log = structlog.get_logger("web.request")
GetResponse = Callable[[HttpRequest], HttpResponseBase]
SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}
PROBES = {"/livez", "/readyz", "/metrics"}


class RequestTrail:
    """Names each request, answers with that name, counts it and writes one line about it."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        name = begin_request(request.headers.get("X-Request-ID"))
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=name)
        started = time.perf_counter()
        response = self.get_response(request)
        seconds = time.perf_counter() - started
        response["X-Request-ID"] = name
        _write_rate_headers(request, response)
        match = request.resolver_match
        # The route, not the path: one series per address would never end.
        route = match.route if match else "unknown"
        REQUESTS.labels(request.method or "", route, str(response.status_code)).inc()
        REQUEST_SECONDS.labels(route).observe(seconds)
        if request.path not in PROBES:
            level = "error" if response.status_code >= 500 else "info"
            getattr(log, level)(
                "request",
                method=request.method,
                path=request.path,
                status=response.status_code,
                ms=round(seconds * 1000, 1),
            )
        return response


class NoOtherSites:
    """Refuses unsafe requests that a browser sends on behalf of another site.

    Programs with a token send none of these headers; browsers always send at least one of them.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.method not in SAFE and comes_from_elsewhere(request):
            log.warning("cross-site request refused", path=request.path, origin=request.headers.get("Origin"))
            detail = "requests of other sites are refused"
            if is_api(request):
                return problem_response(403, "cross-site", detail)
            return HttpResponse(detail, status=403, content_type="text/plain")
        return self.get_response(request)


def comes_from_elsewhere(request: HttpRequest) -> bool:
    """Whether the browser says that another site caused this request."""
    origin = request.headers.get("Origin")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return False
    if request.headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
        return True
    return origin is not None and urlsplit(origin).netloc.lower() != request.get_host().lower()


def _write_rate_headers(request: HttpRequest, response: HttpResponseBase) -> None:
    verdict = getattr(request, "rate_verdict", None)
    if verdict is not None:
        response["RateLimit-Limit"] = str(verdict.limit)
        response["RateLimit-Remaining"] = str(verdict.remaining)
        response["RateLimit-Reset"] = str(round(verdict.reset_s))
