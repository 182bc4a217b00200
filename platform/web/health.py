"""Whether the site lives and can serve: for supervisors, load balancers and people."""

from collections.abc import Callable
from typing import Any

from celery import current_app
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from cluster.api.view import Download
from web.metrics import exposition

BROKER_SECONDS = 1.0
HELD = "SELECT count(*) FROM cluster_lease WHERE owner <> %s AND expires_at > clock_timestamp()"
_migrated = False


@require_safe
def livez(request: HttpRequest) -> JsonResponse:
    """Say that this process answers, and nothing else."""
    return JsonResponse({"status": "alive"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Say whether requests can be served: 200, or 503 with the part that is missing."""
    checks: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            checks[name] = check()
        except Exception as error:  # whatever it is, the answer is that this part is missing
            checks[name] = f"failed: {type(error).__name__}"
    ready = not any(result.startswith("failed") for result in checks.values())
    body = {"status": "ready" if ready else "not ready", "checks": {**checks, "workers": workers()}}
    response = JsonResponse(body, status=200 if ready else 503)
    if not ready:
        response["Retry-After"] = "2"
    return response


def database() -> str:
    """Ask the database for something."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "ok"


def migrations() -> str:
    """Look whether every migration has been applied; once true, it stays true for this process."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connections["default"])
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return "failed: migrations are missing"
        _migrated = True
    return "ok"


def broker() -> str:
    """Knock at the broker."""
    with current_app.connection_for_read(connect_timeout=BROKER_SECONDS) as knock:
        knock.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_SECONDS)
    return "ok"


def workers() -> str:
    """Say whether some worker holds a lease now; the site serves without workers, so this fails nothing."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(HELD, [""])
            held = cursor.fetchone()[0]
    except Exception as error:  # said above already, by the check of the database
        return f"unknown: {type(error).__name__}"
    return f"{held} leases held" if held else "idle or not running"


CHECKS: dict[str, Callable[[], str]] = {"database": database, "migrations": migrations, "broker": broker}


class Metrics(Download):
    """Figures for Prometheus; with a token (`bearer_token` of the scrape configuration) or a session."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any) -> HttpResponse:
        """Return every figure in Prometheus' text format."""
        return HttpResponse(exposition(), content_type="text/plain; version=0.0.4; charset=utf-8")
