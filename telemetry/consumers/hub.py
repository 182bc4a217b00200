"""The fan-out of one web process: one LISTEN connection, one read per event, a bounded queue per socket.

One message per socket through a channel layer was measured at seven times the latency of this.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import psycopg
import structlog
from channels.db import database_sync_to_async
from django.db import connection
from psycopg.conninfo import make_conninfo

from journal.queries import events_after, window_of
from journal.services.events import NOTIFY_CHANNEL
from telemetry.consumers.frames import Frame, frame_of

log = structlog.get_logger(__name__)
QUEUE_FRAMES = 512
READ_LIMIT = 500
# A busy stream is read at most this often; the events of the interval travel together.
READ_INTERVAL_S = 0.1
# NOTIFY only wakes; should one get lost with a broken connection, this finds what it announced.
POLL_INTERVAL_S = 5.0
RECONNECT_S = 0.5

read_events = database_sync_to_async(events_after, thread_sensitive=False)
read_window = database_sync_to_async(window_of, thread_sensitive=False)


@dataclass(eq=False)
class Subscriber:
    """One socket's queue; `overflowed` is set when it cannot keep up."""

    frames: asyncio.Queue[Frame] = field(default_factory=lambda: asyncio.Queue(QUEUE_FRAMES))
    overflowed: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, frames: Iterable[Frame]) -> None:
        """Queue frames, or give up on a reader that is too slow."""
        try:
            for frame in frames:
                self.frames.put_nowait(frame)
        except asyncio.QueueFull:
            self.overflowed.set()


@dataclass(eq=False)
class Feed:
    """A stream somebody here listens to, and how far it has been handed out."""

    stream: str
    last_seq: int
    subscribers: set[Subscriber] = field(default_factory=set)
    dirty: asyncio.Event = field(default_factory=asyncio.Event)
    reader: asyncio.Task[None] | None = None


class Hub:
    """Brings committed events to the subscribers of this process, in order and without gaps."""

    def __init__(self) -> None:
        self.feeds: dict[str, Feed] = {}
        self._listener: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()

    async def subscribe(self, stream: str) -> tuple[Subscriber, int]:
        """Return a subscriber that gets every event after the returned sequence number."""
        async with self._joining:
            if self._listener is None or self._listener.done():
                self._listener = asyncio.create_task(self._listen())
            feed = self.feeds.get(stream)
            if feed is None:
                feed = self.feeds[stream] = Feed(stream, (await read_window(stream)).last_seq)
                feed.reader = asyncio.create_task(self._read(feed))
                feed.dirty.set()
            subscriber = Subscriber()
            feed.subscribers.add(subscriber)
            return subscriber, feed.last_seq

    def unsubscribe(self, stream: str, subscriber: Subscriber) -> None:
        """Forget a socket; a stream nobody listens to is no longer read."""
        feed = self.feeds.get(stream)
        if feed is None:
            return
        feed.subscribers.discard(subscriber)
        if not feed.subscribers:
            del self.feeds[stream]
            if feed.reader:
                feed.reader.cancel()

    async def _read(self, feed: Feed) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(feed.dirty.wait(), POLL_INTERVAL_S)
            feed.dirty.clear()
            try:
                await self._hand_out(feed)
            except Exception as error:  # the database may be away; whatever it was, try again
                log.warning("hub.read_failed", stream=feed.stream, error=str(error))
                feed.dirty.set()
                await asyncio.sleep(RECONNECT_S)
            await asyncio.sleep(READ_INTERVAL_S)

    async def _hand_out(self, feed: Feed) -> None:
        while events := await read_events(feed.stream, feed.last_seq, READ_LIMIT):
            frames = [frame_of(event) for event in events]
            feed.last_seq = frames[-1].seq
            for subscriber in list(feed.subscribers):
                subscriber.offer(frames)
            if len(events) < READ_LIMIT:
                return

    async def _listen(self) -> None:
        while True:
            try:
                await self._follow(
                    await psycopg.AsyncConnection.connect(address_of_database(), autocommit=True)
                )
            except (psycopg.Error, OSError) as error:
                log.warning("hub.listen_failed", error=str(error))
            await asyncio.sleep(RECONNECT_S)

    async def _follow(self, listening: psycopg.AsyncConnection) -> None:
        async with listening:
            await listening.execute(f"LISTEN {NOTIFY_CHANNEL}")
            for feed in self.feeds.values():
                feed.dirty.set()
            async for notice in listening.notifies():
                told = self.feeds.get(json.loads(notice.payload)["stream"])
                if told is not None:
                    told.dirty.set()


def address_of_database() -> str:
    """Return how to reach the database, for a connection outside Django's pool."""
    known = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    return make_conninfo(**{name: known[name] for name in names if known.get(name)})


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """Return the hub of the running event loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), Hub())
