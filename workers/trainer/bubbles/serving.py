"""What a guest does once torch is loaded: orders from a pipe, training while its gate is open."""

import time
from multiprocessing.connection import Connection
from typing import Any

import torch

from tuning.core.study.events import Reported
from workers.squeezer.gate import GuestGate
from workers.trainer.bubbles.pausing import PausePoints
from workers.trainer.container import run_container
from workers.trainer.orders import ProfileOrder, TargetOrder, TransferOrder, Verdict
from workers.trainer.process import Order, PipeControl
from workers.trainer.profiling import run_profile
from workers.trainer.solo import describe_error
from workers.trainer.target import train_target
from workers.trainer.transfer import check_transfer

GATHER_S = 0.5


class Outbox:
    """Events on their way out. Reports of epochs wait for more of their kind: every message takes the
    squeezer time on a core that it shares with the owner."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._waiting, self._sent_s = pipe, list[Any](), time.monotonic()

    def report(self, event: Any) -> None:
        """Send an event, or keep a patient one for a moment."""
        self._waiting.append(event)
        if not isinstance(event, Reported) or time.monotonic() - self._sent_s > GATHER_S:
            self.flush()

    def flush(self) -> None:
        """Send what waits, as one message."""
        waiting, self._waiting = self._waiting, []
        self._sent_s = time.monotonic()
        if waiting:
            self._pipe.send(waiting)


class GatedControl(PipeControl):
    """A driver at the other end of a pipe; every batch is a step and a pause point."""

    def __init__(self, pipe: Connection, run: str, gate: GuestGate, outbox: Outbox) -> None:
        super().__init__(pipe, run)
        self.gate, self.outbox = gate, outbox

    def verdict(self, epoch: int) -> Verdict:
        """Wait for the verdict on a rung."""
        self.outbox.flush()
        return super().verdict(epoch)

    def stopped(self) -> bool:
        """Whether the run must end; returns when the guest may run."""
        self.gate.step()
        return super().stopped()


def serve(pipe: Connection, gate: GuestGate) -> None:
    """Carry out orders until the pipe closes. The whole process belongs to this function."""
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.Stream(priority=0))  # the lowest there is
    gate.point()
    try:
        while (message := pipe.recv()) is not None:
            if message[0] == "order":
                gate.begin()
                with PausePoints(gate):
                    _carry_out(message[1], pipe, gate)
    except (EOFError, BrokenPipeError, OSError):
        return  # the squeezer is gone, and with it the reason to train


def _carry_out(order: Order, pipe: Connection, gate: GuestGate) -> None:
    outbox = Outbox(pipe)
    try:
        outbox.report(_run(order, outbox, GatedControl(pipe, order.run, gate, outbox)))
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:
        outbox.report(("broken", order.run, describe_error(error)))


def _run(order: Order, outbox: Outbox, control: GatedControl) -> Any:
    if isinstance(order, ProfileOrder):
        return run_profile(order)
    if isinstance(order, TargetOrder):
        return train_target(order, outbox.report, control)
    if isinstance(order, TransferOrder):
        return check_transfer(order, control)
    return run_container(order, outbox.report, control)
