"""The body of the actor that is a rank. Imports little: it is loaded in the actor's process as well."""

import os
from typing import Any

from workers.trainer.parallel.hooks import MakeHook

LOOPBACK = "127.0.0.1"


class RankActor:
    """A rank in a process of its own. Methods run in threads, so that a poll never waits for training."""

    def __init__(self, make_hook: MakeHook | None = None) -> None:
        # torch is loaded in the actor's process only, not wherever this module is imported.
        from workers.trainer.parallel.rank import Rank

        self.rank = Rank(hook=None if make_hook is None else make_hook())

    def start(self, order: dict[str, Any]) -> tuple[int, str]:
        """Begin; returns the process's number and the address of its node."""
        from ray.util import get_node_ip_address

        from workers.trainer.parallel.rank import RankOrder

        address = order["host"] if order["host"] == LOOPBACK else get_node_ip_address()
        self.rank.start(RankOrder.from_json({**order, "address": address}))
        return os.getpid(), address

    def poll(self, after: int) -> list[dict[str, Any]]:
        """Return events from number `after` on, waiting a moment if there are none."""
        return self.rank.poll(after)

    def command(self, data: dict[str, Any]) -> None:
        """Take a command: reconfigure, inject, checkpoint, known or finish."""
        self.rank.command(data)

    def stop(self) -> None:
        """End after the present iteration."""
        self.rank.stop()
