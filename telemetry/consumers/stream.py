"""The consumer behind /ws/streams/{stream}?after=SEQ."""

import asyncio
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from journal.queries import window_of
from telemetry.consumers.access import Credential, Doorkeeper, Watched, not_allowed
from telemetry.consumers.frames import Frame, frame_of, reset_frame
from telemetry.consumers.hub import READ_LIMIT, Subscriber, hub, read_events
from telemetry.core.streams import Close, StreamName, parse_stream
from telemetry.queries import snapshot_of


class StreamConsumer(AsyncWebsocketConsumer):
    """Replays what a browser missed, then follows live: every event once, in order."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        super().__init__()
        self.doorkeeper = doorkeeper
        self.stream = ""
        self.subscriber: Subscriber | None = None
        self.watched: Watched | None = None
        self.tasks: set[asyncio.Task[Any]] = set()

    async def connect(self) -> None:
        # Accepted first, since a browser learns the close code only of an open socket.
        await self.accept()
        refusal = await self._refusal()
        if refusal is not None:
            await self.close(code=refusal)
            return
        self.watched = Watched(self.scope["credential"], self.stream, self._close)
        self.doorkeeper.watch(self.watched)
        self.tasks.add(asyncio.create_task(self._run()))

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
        if self.watched:
            self.doorkeeper.forget(self.watched)
        if self.subscriber:
            hub().unsubscribe(self.stream, self.subscriber)

    async def _refusal(self) -> Close | None:
        if self.scope.get("refusal"):
            return Close(self.scope["refusal"])
        credential: Credential | None = self.scope.get("credential")
        if credential is None:
            return Close.NOT_SIGNED_IN
        self.stream = self.scope["url_route"]["kwargs"]["stream"]
        if parse_stream(self.stream) is None or await not_allowed({(credential, self.stream)}):
            return Close.NO_SUCH_STREAM
        return None

    async def _close(self, code: Close) -> None:
        await self.close(code=int(code))

    async def _run(self) -> None:
        self.subscriber, live_from = await hub().subscribe(self.stream)
        sent = await self._catch_up(self._asked_after(), live_from)
        overflow = asyncio.create_task(self.subscriber.overflowed.wait())
        writer = asyncio.create_task(self._write(self.subscriber, sent))
        self.tasks |= {overflow, writer}
        await asyncio.wait({overflow, writer}, return_when=asyncio.FIRST_COMPLETED)
        if overflow.done():
            writer.cancel()
            await self._close(Close.TOO_SLOW)

    def _asked_after(self) -> int | None:
        values = parse_qs(self.scope["query_string"].decode("latin-1")).get("after", [])
        return int(values[-1]) if values and values[-1].isascii() and values[-1].isdigit() else None

    async def _catch_up(self, after: int | None, live_from: int) -> int:
        """Send what lies between the browser's last number and the live feed; return the last number sent."""
        window = await database_sync_to_async(window_of)(self.stream)
        if after is None or not window.can_resume(after):
            return await self._send(await self._reset(window.last_seq))
        while events := await read_events(self.stream, after, READ_LIMIT):
            for event in events:
                after = await self._send(frame_of(event))
            if len(events) < READ_LIMIT and after >= live_from:
                break
        return after

    async def _reset(self, seq: int) -> Frame:
        name = parse_stream(self.stream) or StreamName("", None)
        # The number is read before the state: something may come again, but nothing is missed.
        return reset_frame(self.stream, seq, await database_sync_to_async(snapshot_of)(name))

    async def _write(self, subscriber: Subscriber, sent: int) -> None:
        while True:
            frame = await subscriber.frames.get()
            if frame.seq > sent:
                sent = await self._send(frame)

    async def _send(self, frame: Frame) -> int:
        await self.send(text_data=frame.text)
        return frame.seq

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: Any) -> None:
        """Nothing is expected from a browser; what it says is ignored."""
