"""Renews everything an owner holds, in a thread of its own, so that slow work never costs the lease."""

import threading

import structlog
from django.db import InterfaceError, OperationalError, connection

from cluster.core.errors import LeaseLost
from cluster.services.leases import Held, renew_all

log = structlog.get_logger(__name__)


class Heartbeat:
    """Keeps a lease and whatever else its owner takes; `alive` names what the last renewal found."""

    def __init__(self, held: Held, seconds: float) -> None:
        self.held, self.seconds = held, seconds
        self.alive: set[str] = {held.name}
        self.beats = 0
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat {held.name}", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise LeaseLost once the lease is somebody else's or has run out."""
        if self._lost.is_set():
            raise LeaseLost(self.held.name)

    def _beat(self) -> None:
        try:
            while not self._stop.wait(self.seconds / 4) and not self._lost.is_set():
                self._renew()
        finally:
            connection.close()

    def _renew(self) -> None:
        try:
            alive = renew_all(self.held.owner, seconds=self.seconds)
        except (OperationalError, InterfaceError) as error:
            log.warning("heartbeat.database_away", error=str(error).splitlines()[0])
            connection.close()
            return
        if self.held.name not in alive:
            self._lost.set()
        self.alive, self.beats = alive, self.beats + 1
