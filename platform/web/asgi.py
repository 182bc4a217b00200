"""The ASGI application: HTTP to Django, WebSockets to the consumers."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "web.settings")
# Django must be set up before anything that has models is imported.
http = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.core.handlers.asgi import ASGIHandler  # noqa: E402
from django.core.signals import request_finished  # noqa: E402
from django.urls import re_path  # noqa: E402

from telemetry.routing import websocket_urlpatterns  # noqa: E402
from web.edges import BodyLimit, close_connection, counted, nowhere  # noqa: E402
from web.websockets import no_longer_hold, with_credentials  # noqa: E402

request_finished.connect(close_connection, sender=ASGIHandler)
sockets = URLRouter([*websocket_urlpatterns(no_longer_hold), re_path("", nowhere)])  # type: ignore[arg-type]
application = BodyLimit(
    ProtocolTypeRouter({"http": http, "websocket": counted(with_credentials(sockets))}),
    most_bytes=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
)
