"""WebSocket addresses."""

from typing import Any

from django.urls import re_path

from telemetry.consumers.access import Doorkeeper, Recheck
from telemetry.consumers.stream import StreamConsumer


def websocket_urlpatterns(recheck: Recheck) -> list[Any]:
    """Return the routes; `recheck` tells which credentials no longer hold."""
    doorkeeper = Doorkeeper(recheck)
    return [re_path(r"^ws/streams/(?P<stream>[^/]+)$", StreamConsumer.as_asgi(doorkeeper=doorkeeper))]
