"""The body of the actor that stands for a lent device: it relays between a driver and a guest in bubbles.

It has the methods of `workers.actors.DeviceProcess`. The guest is a child of the squeezer, which is a child
of this actor: the actor itself is never stopped, so that no call to it hangs, and all three end together.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tuning.core.study.events import RunLost
from workers.actors import Desk, Order
from workers.squeezer.guests import GuestOrder
from workers.squeezer.process import SqueezerProcess
from workers.squeezer.rules import Rules
from workers.trainer.orders import Verdict

HEAR_S = 0.1


class BubbleProcess:
    """One guest process on one board, kept warm from run to run and started anew where it has ended.

    `orphaned` is called when the squeezer is gone, which ends every run.
    """

    def __init__(
        self,
        board: str,
        rules: Rules | None = None,
        scheduling: str = "idle",
        orphaned: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self.board, self._scheduling, self._orphaned = board, scheduling, orphaned
        self.desks: dict[str, Desk] = {}
        self.samples: list[dict[str, Any]] = []
        self._asking = threading.Lock()
        self._started = 0
        self._guest: str | None = None
        self._squeezer = SqueezerProcess(rules)
        self._squeezer.ask("board", board)
        threading.Thread(target=self._relay, name="relay", daemon=True).start()

    def start(self, order: Order) -> None:
        """Hand an order to the guest; its end is an event like every other."""
        self.desks[order.run] = Desk(order.run)
        with self._asking:
            if self._guest is None:
                self._started += 1
                self._guest = f"guest-{os.getpid()}-{self._started}"
                self._squeezer.ask("guest", GuestOrder(self._guest, self.board, scheduling=self._scheduling))
            self._squeezer.ask("send", self._guest, ("order", order))

    def poll(self, run: str, after: int) -> list[dict[str, Any]]:
        """Return the run's events from number `after` on, waiting a moment if there are none yet."""
        return self.desks[run].fetch(after)

    def tell(self, run: str, epoch: int | None, verdict: Verdict) -> None:
        """Pass on the verdict on a rung, or a wish for the next epoch."""
        self._send(("pending" if epoch is None else "verdict", run, verdict))

    def stop(self, run: str) -> None:
        """End a run between two batches."""
        self._send(("stop", run))

    def forget(self, run: str) -> None:
        """Drop what a run that is over has left here."""
        self.desks.pop(run, None)

    def sampled(self) -> list[dict[str, Any]]:
        """Return the samples of the board since the last call."""
        samples, self.samples = self.samples, []
        return samples

    def lend(self, lending: bool) -> None:
        """Switch the use of this board's bubbles on or off, at once."""
        with self._asking:
            self._squeezer.ask("lend", self.board, lending)

    def close(self) -> None:
        """End the guest and the squeezer."""
        self._squeezer.close()

    def _send(self, message: tuple[Any, ...]) -> None:
        with self._asking:
            if self._guest is not None:
                self._squeezer.ask("send", self._guest, message)

    def _relay(self) -> None:
        while self._squeezer.alive():
            for kind, name, *rest in self._squeezer.hear(HEAR_S):
                if kind == "messages":
                    for message in rest[0]:
                        self._take(message)
                elif kind == "sample":
                    self.samples = [*self.samples[-60:], rest[0]]
                elif kind in ("ended", "refused"):
                    self._lose(name, str(rest[0]))
        self._lose(self._guest, "its squeezer is gone")
        time.sleep(1.0)  # for the driver to hear of it
        self._orphaned()

    def _take(self, message: Any) -> None:
        if not isinstance(message, tuple):
            desk = self.desks.get(message.run)
            if desk is not None:
                desk.report(message)
        elif message[0] == "broken" and message[1] in self.desks:
            self.desks[message[1]].report(RunLost(message[1], 0.0, message[2][:900]))

    def _lose(self, name: str | None, reason: str) -> None:
        with self._asking:
            if name == self._guest:
                self._guest = None
        for run, desk in list(self.desks.items()):
            if not desk.events or desk.events[-1]["event"] not in FINAL:
                desk.report(RunLost(run, 0.0, reason))


FINAL = {"ContainerEnded", "TargetEnded", "Profiled", "TransferChecked", "RunLost"}
