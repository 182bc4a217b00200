"""Who stands behind a WebSocket, and whether that still holds."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

import structlog
from channels.db import database_sync_to_async

from cluster.models import User
from telemetry.core.streams import Close, parse_stream
from telemetry.queries import may_follow

log = structlog.get_logger(__name__)
RECHECK_S = 2.0


@dataclass(frozen=True)
class Credential:
    """How somebody signed in: a session, or a token that may be bound to a team."""

    user_id: UUID
    token_id: UUID | None = None
    team_id: UUID | None = None
    session_key: str | None = None


# Returns those that no longer hold. The web project provides it, since it knows tokens and sessions.
Recheck = Callable[[Iterable[Credential]], set[Credential]]


@dataclass(eq=False, frozen=True)
class Watched:
    """An open socket whose rights are looked at again and again."""

    credential: Credential
    stream: str
    close: Callable[[Close], Awaitable[None]]


class Doorkeeper:
    """Closes sockets whose token, session or membership is gone: one look for all of them."""

    def __init__(self, recheck: Recheck) -> None:
        self.recheck = database_sync_to_async(recheck, thread_sensitive=False)
        self.watched: set[Watched] = set()
        self._task: asyncio.Task[None] | None = None

    def watch(self, watched: Watched) -> None:
        """Look after an open socket until `forget`."""
        self.watched.add(watched)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())

    def forget(self, watched: Watched) -> None:
        """Stop looking after a socket."""
        self.watched.discard(watched)

    async def _look(self) -> None:
        while self.watched:
            await asyncio.sleep(RECHECK_S)
            try:
                await self._close_the_revoked()
            except Exception as error:  # the database may be away; nobody loses a socket over that
                log.warning("doorkeeper.failed", error=str(error))

    async def _close_the_revoked(self) -> None:
        gone = await self.recheck({w.credential for w in self.watched})
        pairs = {(w.credential, w.stream) for w in self.watched if w.credential not in gone}
        barred = await not_allowed(pairs)
        for watched in list(self.watched):
            code = None
            if watched.credential in gone:
                code = Close.NOT_SIGNED_IN
            elif (watched.credential, watched.stream) in barred:
                code = Close.NOT_ALLOWED
            if code:
                self.forget(watched)
                with contextlib.suppress(Exception):
                    await watched.close(code)


@database_sync_to_async
def not_allowed(pairs: set[tuple[Credential, str]]) -> set[tuple[Credential, str]]:
    """Return the pairs of credential and stream that do not go together."""
    users = {user.pk: user for user in User.objects.filter(pk__in={c.user_id for c, _ in pairs})}
    return {(c, name) for c, name in pairs if not _allowed(users.get(c.user_id), c, name)}


def _allowed(user: User | None, credential: Credential, name: str) -> bool:
    stream = parse_stream(name)
    return user is not None and stream is not None and may_follow(user, stream, team_id=credential.team_id)
