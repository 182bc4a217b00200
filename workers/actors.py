"""Ray actors: a device's process. It runs one order at a time and keeps what happened until it is fetched."""

import contextlib
import queue
import threading
import traceback
from typing import Any

from tuning.core.study.events import Event, RunLost
from workers.trainer.orders import (
    ContainerOrder,
    ProfileOrder,
    Stopped,
    TargetOrder,
    TransferOrder,
    Verdict,
)

Order = ContainerOrder | TargetOrder | ProfileOrder | TransferOrder
LONG_POLL_S = 0.5
# Reports of epochs may wait this long for more of their kind: every delivery costs the driver a turn.
GATHER_S = 0.4
PATIENT = {"Reported", "TargetReported"}


class Desk:
    """What lies between the thread that trains and the driver that asks: events out, verdicts in."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.events: list[dict[str, Any]] = []
        self.news = threading.Condition()
        self.verdicts: dict[int, Verdict] = {}
        self.wishes: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        self.must_stop = threading.Event()
        # Whether something happened, or somebody waits, that the driver should hear of at once.
        self.urgent = False

    def report(self, event: Event) -> None:
        """Keep an event for the driver."""
        document = event.to_json()
        with self.news:
            self.events.append(document)
            self.urgent = self.urgent or document["event"] not in PATIENT
            self.news.notify_all()

    def fetch(self, after: int) -> list[dict[str, Any]]:
        """Return the events from number `after` on, waiting a moment if there are none yet."""
        with self.news:
            self.news.wait_for(lambda: len(self.events) > after, LONG_POLL_S)
            if len(self.events) > after:
                self.news.wait_for(lambda: self.urgent, GATHER_S)
            self.urgent = False
            return self.events[after:]

    def verdict(self, epoch: int) -> Verdict:
        """Wait for the driver's verdict on a rung."""
        with self.news:
            self.urgent = True
            self.news.notify_all()
            while epoch not in self.verdicts:
                if self.must_stop.is_set():
                    raise Stopped
                self.news.wait(1.0)
            return self.verdicts[epoch]

    def pending(self) -> Verdict:
        """Return what was asked for since the last epoch."""
        stop: set[int] = set()
        pause = False
        while not self.wishes.empty():
            wish = self.wishes.get()
            stop |= set(wish.stop)
            pause = pause or wish.pause
        return Verdict(tuple(sorted(stop)), pause)

    def stopped(self) -> bool:
        """Whether the run must end between two batches."""
        return self.must_stop.is_set()


class DeviceProcess:
    """The body of the actor. Methods run in threads of their own, so that a poll never waits for training."""

    def __init__(self) -> None:
        self.desks: dict[str, Desk] = {}
        self.meetings: dict[str, Any] = {}

    def address(self) -> str:
        """Return the address of the machine this process is on."""
        import ray

        return str(ray.util.get_node_ip_address())

    def meet(self, run: str, host: str) -> int:
        """Open the place where the ranks of a target meet, until it is forgotten; returns its port."""
        from workers.trainer.ranks.meeting import open_meeting

        self.meetings[run] = open_meeting(host)
        return int(self.meetings[run].port)

    def start(self, order: Order) -> None:
        """Begin an order in a thread; its end is an event like every other."""
        desk = self.desks[order.run] = Desk(order.run)
        threading.Thread(target=self._run, args=(order, desk), name=order.run, daemon=True).start()

    def poll(self, run: str, after: int) -> list[dict[str, Any]]:
        """Return the run's events from number `after` on, waiting a moment if there are none yet."""
        return self.desks[run].fetch(after)

    def tell(self, run: str, epoch: int | None, verdict: Verdict) -> None:
        """Hand in the verdict on a rung, or a wish for the next epoch."""
        desk = self.desks[run]
        with desk.news:
            if epoch is None:
                desk.wishes.put(verdict)
            else:
                desk.verdicts[epoch] = verdict
            desk.news.notify_all()

    def stop(self, run: str) -> None:
        """End a run between two batches."""
        desk = self.desks[run]
        desk.must_stop.set()
        with desk.news:
            desk.news.notify_all()

    def forget(self, run: str) -> None:
        """Drop what a run that is over has left here."""
        self.desks.pop(run, None)
        self.meetings.pop(run, None)

    def warm(self, spec: dict[str, Any]) -> None:
        """Load what every run of a study needs; what cannot be loaded is told by the first run."""
        with contextlib.suppress(Exception):
            import workers.trainer.container
            import workers.trainer.target  # noqa: F401
            from workers.trainer.loading import load_workload

            load_workload(str(spec["workload"]), spec.get("parameters"))

    def facts(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the workload's facts; its code is loaded here and not in the driver."""
        from tuning.core.study import StudySpec
        from workers.trainer.facts import study_facts
        from workers.trainer.loading import load_workload

        study = StudySpec.from_dict(spec)
        return study_facts(load_workload(study.workload, study.parameters), study).to_json()

    def _run(self, order: Order, desk: Desk) -> None:
        try:
            desk.report(execute(order, desk))
        except Exception as error:
            traceback.print_exc()
            desk.report(RunLost(order.run, 0.0, f"{type(error).__name__}: {error}"[:900]))


def execute(order: Order, desk: Desk) -> Event:
    """Run an order with the torch runtime and return how it ended."""
    # torch is loaded in the actor's process only, not wherever this module is imported.
    from workers.trainer.container import run_container
    from workers.trainer.profiling import run_profile
    from workers.trainer.target import train_target
    from workers.trainer.transfer import check_transfer

    if isinstance(order, ContainerOrder):
        return run_container(order, desk.report, desk)
    if isinstance(order, TargetOrder):
        return train_target(order, desk.report, desk)
    if isinstance(order, TransferOrder):
        return check_transfer(order, desk)
    return run_profile(order)
