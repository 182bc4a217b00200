"""What stands before Django: no body over the limit, however it is sent; sockets are counted."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import connections

from telemetry.core.streams import Close
from web.metrics import SOCKETS
from web.problems import CONTENT_TYPE, problem

Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class _TooLarge(Exception):
    """More bytes have come than allowed."""


class BodyLimit:
    """ASGI middleware: 413 for a request that announces or sends more than `most_bytes`.

    Django reads a body whole before any of its own code can look at the size.
    """

    def __init__(self, app: App, most_bytes: int) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self.most_bytes:
            await _refuse(send)
            return
        received = 0

        async def counted() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most_bytes:
                raise _TooLarge
            return message

        try:
            await self.app(scope, counted, send)
        except _TooLarge:
            await _refuse(send)


async def _refuse(send: Any) -> None:
    body = json.dumps(problem(413, "too-large", "a body may have at most 1 MB")).encode()
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def close_connection(**_: Any) -> None:
    """Close the database connection of a request's thread, which ends with the request.

    A connection kept for the next request would have no thread to serve, and wait for a garbage collection.
    """
    connections["default"].close()


def counted(app: App) -> App:
    """Wrap the WebSockets so that a gauge says how many are open."""

    async def count(scope: Scope, receive: Any, send: Any) -> None:
        SOCKETS.inc()
        try:
            await app(scope, receive, send)
        finally:
            SOCKETS.dec()

    return count


async def nowhere(scope: Scope, receive: Any, send: Any) -> None:
    """Close a WebSocket whose address does not exist."""
    await receive()
    # Accepted first, since a browser learns the close code only of an open socket.
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": int(Close.NO_SUCH_STREAM)})
