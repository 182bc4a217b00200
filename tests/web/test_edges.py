import asyncio
import json

import pytest

from web.edges import BodyLimit, counted, nowhere
from web.metrics import SOCKETS


async def through(messages, headers=(), most_bytes=10):
    """Send a request through the limit into an app that reads it whole; return what comes back."""
    sent, waiting = [], list(messages)

    async def receive():
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    async def app(scope, receive, send):
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(size).encode()})

    await BodyLimit(app, most_bytes)({"type": "http", "headers": list(headers)}, receive, send)
    return sent[0]["status"], sent[1]["body"], waiting


def chunks(*sizes):
    last = len(sizes) - 1
    return [{"type": "http.request", "body": b"x" * n, "more_body": i < last} for i, n in enumerate(sizes)]


@pytest.mark.parametrize("sizes", [(0,), (10,), (5, 5), (1,) * 10])
async def test_a_body_up_to_the_limit_goes_through(sizes):
    assert (await through(chunks(*sizes)))[:2] == (200, str(sum(sizes)).encode())


@pytest.mark.parametrize("sizes", [(11,), (5, 6, 100), (1,) * 30])
async def test_a_body_over_the_limit_is_not_read_to_its_end(sizes):
    status, body, left = await through(chunks(*sizes))
    assert (status, json.loads(body)["type"]) == (413, "urn:forebay:problem:too-large")
    assert len(left) == len(sizes) - next(i for i in range(1, len(sizes) + 1) if sum(sizes[:i]) > 10)


async def test_a_body_that_announces_too_much_is_not_read_at_all():
    status, _, left = await through(chunks(5), [(b"content-length", b"11")])
    assert (status, len(left)) == (413, 1)


async def test_a_length_that_is_no_number_is_left_to_the_counting():
    assert (await through(chunks(5), [(b"content-length", b"lots")]))[0] == 200


async def test_open_sockets_are_counted_and_forgotten_even_when_they_break():
    before, inside, leave = SOCKETS._value.get(), asyncio.Event(), asyncio.Event()

    async def app(scope, receive, send):
        inside.set()
        await leave.wait()
        raise ConnectionResetError

    task = asyncio.create_task(counted(app)({}, None, None))
    await inside.wait()
    assert SOCKETS._value.get() == before + 1
    leave.set()
    with pytest.raises(ConnectionResetError):
        await task
    assert SOCKETS._value.get() == before


async def test_a_socket_to_nowhere_is_closed_with_a_reason():
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    await nowhere({}, receive, send)
    assert sent == [{"type": "websocket.accept"}, {"type": "websocket.close", "code": 4404}]
