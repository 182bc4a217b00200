"""Many browsers on one event stream, and what each of them receives."""

import asyncio
import json
import math
import statistics
import threading
import time
from array import array
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self, TypeVar, cast
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from forebay.cli.bench.platform_house import House
from forebay.cli.errors import CommandError, Exit

STREAM = "fleet"
OPENING_AT_ONCE = 32
OPEN_LIMIT_S = 120.0
# After the last event was written, the slowest client has this long to receive it.
LAST_WORD_S = 15.0
T = TypeVar("T")


@dataclass
class Received:
    """What one client got: contiguous sequence numbers, or not."""

    next_seq: int = 0
    gaps: int = 0
    doubles: int = 0
    latencies_s: "array[float]" = field(default_factory=lambda: array("d"))

    def take(self, seq: int, latency_s: float) -> None:
        """Note an event; `gaps` counts events that never came, `doubles` those that came again."""
        if seq < self.next_seq:
            self.doubles += 1
            return
        self.gaps += seq - self.next_seq
        self.next_seq = seq + 1
        self.latencies_s.append(latency_s)


class Listener(asyncio.Protocol):
    """A WebSocket client that costs little, since it shares the machine with the server it measures.

    Like a browser it offers to have frames compressed.
    """

    def __init__(self, address: str, token: str) -> None:
        extensions = [ClientPerMessageDeflateFactory(compress_settings={"memLevel": 5})]
        self.protocol = ClientProtocol(parse_uri(address), extensions=extensions)
        self.token = token
        self.received = Received()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed: str | None = None
        self.events: asyncio.Queue[tuple[float, dict[str, Any]]] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        request = self.protocol.connect()
        request.headers["Authorization"] = f"Bearer {self.token}"
        self.protocol.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            if isinstance(event, Response) and self.protocol.handshake_exc:
                self._end(str(self.protocol.handshake_exc))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._take(now, json.loads(bytes(event.data)))
            elif isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
                self._end(f"closed with {self.protocol.close_code}")
        self._flush()

    def eof_received(self) -> None:
        self.protocol.receive_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc or "closed"))

    def close(self) -> None:
        """End the connection."""
        if self.transport:
            self.transport.abort()

    def _take(self, now: float, message: dict[str, Any]) -> None:
        if "reset" in message:
            self.received.next_seq = message["seq"] + 1
            if not self.opened.done():
                self.opened.set_result(None)
            return
        self.received.take(message["seq"], now - datetime.fromisoformat(message["at"]).timestamp())
        if self.events is not None:
            self.events.put_nowait((time.perf_counter(), message))

    def _end(self, reason: str) -> None:
        self.closed = self.closed or reason
        if not self.opened.done():
            self.opened.set_exception(CommandError(f"a WebSocket was not opened: {reason}", Exit.FAILED))

    def _flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data and self.transport and not self.transport.is_closing():
                self.transport.write(data)


class Crowd:
    """Clients that all follow one stream; each is ready once it has the stream's present state."""

    def __init__(self, url: str, tokens: Sequence[str], clients: int) -> None:
        self.address = f"ws://{urlsplit(url).netloc}/ws/streams/{STREAM}"
        self.tokens, self.clients = tokens, clients
        self.listeners: list[Listener] = []

    async def __aenter__(self) -> Self:
        gate = asyncio.Semaphore(OPENING_AT_ONCE)
        try:
            async with asyncio.timeout(OPEN_LIMIT_S), asyncio.TaskGroup() as group:
                for number in range(self.clients):
                    group.create_task(self._open(gate, self.tokens[number % len(self.tokens)]))
        except TimeoutError:
            self._close()
            words = f"{self.clients} WebSockets were not opened within {OPEN_LIMIT_S:.0f} s"
            raise CommandError(words, Exit.FAILED) from None
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def _open(self, gate: asyncio.Semaphore, token: str) -> None:
        parts = urlsplit(self.address)
        async with gate:
            _, listener = await asyncio.get_running_loop().create_connection(
                lambda: Listener(self.address, token), parts.hostname or "", parts.port or 80
            )
            self.listeners.append(listener)
            await listener.opened

    def _close(self) -> None:
        for listener in self.listeners:
            listener.close()

    async def hear_out(self, last_seq: int) -> None:
        """Wait until everybody has the event with this number, or has had the time for it."""
        deadline = time.monotonic() + LAST_WORD_S
        while time.monotonic() < deadline:
            if all(one.received.next_seq > last_seq or one.closed for one in self.listeners):
                return
            await asyncio.sleep(0.1)

    def figures(self, last_seq: int) -> dict[str, Any]:
        """Return loss and latency over all clients; latency runs from the event's `at` to its receipt."""
        received = [one.received for one in self.listeners]
        latencies = sorted(value for one in received for value in one.latencies_s)
        missing = sum(one.gaps + max(0, last_seq + 1 - one.next_seq) for one in received)
        return {
            "clients": len(received),
            "received": len(latencies),
            "missing": missing,
            "doubled": sum(one.doubles for one in received),
            "disconnected": sum(one.closed is not None for one in self.listeners),
            "median_s": statistics.median(latencies) if latencies else None,
            "p99_s": quantile(latencies, 0.99),
            "max_s": latencies[-1] if latencies else None,
        }


async def follow(
    house: House, tokens: Sequence[str], *, clients: int, rate: float, events: int
) -> dict[str, Any]:
    """Have events written at a steady rate while clients listen; return what they received."""
    began = time.perf_counter()
    async with Crowd(house.runtime.url, tokens, clients) as crowd:
        opening_s = time.perf_counter() - began
        written = await _manage(house, "bench_events", STREAM, f"--events={events}", f"--rate={rate}")
        await crowd.hear_out(written["last_seq"])
        figures = crowd.figures(written["last_seq"])
    # The command's first event, which opens its connection, is one more that everybody receives.
    return {**figures, "events": events + 1, "events_per_s": written["per_second"], "opening_s": opening_s}


async def _manage(house: House, *arguments: str) -> dict[str, Any]:
    abandoned = threading.Event()
    command = house.command(*arguments)
    try:
        document: dict[str, Any] = json.loads(await asyncio.to_thread(command.answer, abandoned.is_set))
        return document
    finally:
        abandoned.set()
        command.abandon()


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that at least this share of an ordered sequence does not exceed."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fastest event loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
