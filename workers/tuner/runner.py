"""The runs of one study on Ray: one actor per device, kept warm from run to run."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings

from cluster.models import Device
from jobs.models import Job
from tuning.core.errors import WorkloadError
from tuning.core.study import Study as Brain
from tuning.core.study import StudyFacts, compile_chance, event_from_json, facts_from_json
from tuning.core.study.actions import (
    CheckTransfer,
    Proceed,
    Profile,
    StartContainer,
    StartTarget,
    StopRun,
    StopTrials,
)
from tuning.core.study.events import (
    ContainerEnded,
    Event,
    Profiled,
    RunLost,
    TargetEnded,
    TransferChecked,
)
from tuning.core.study.lent import is_lent
from workers.ray_cluster import connect, ray
from workers.trainer.orders import (
    ContainerOrder,
    ProfileOrder,
    Seat,
    Setting,
    TargetOrder,
    TransferOrder,
    Verdict,
)
from workers.tuner.actors import bubble_actor, device_actor, is_gpu, on_gpu

log = structlog.get_logger(__name__)
# How long a process may load torch and the workload's code: minutes, where many do so at once.
LOADING_SECONDS = 300
CALL_SECONDS = 20
LOOPBACK = "127.0.0.1"
Start = StartContainer | StartTarget | Profile | CheckTransfer
# Events after which a run does nothing more.
FINAL_EVENTS = {"ContainerEnded", "TargetEnded", "Profiled", "TransferChecked", "RunLost"}


@dataclass
class Helper:
    """A later rank of a data-parallel target: it is asked whether it still answers, and why it failed."""

    device: str
    actor: Any
    fetched: int = 0
    heard: float = field(default_factory=time.monotonic)
    asked: Any = None


@dataclass
class Run:
    """Something that runs on a device now; `loading` is what its process still loads before it can begin."""

    id: str
    device: str
    actor: Any
    fetched: int = 0
    heard: float = field(default_factory=time.monotonic)
    asked: Any = None
    loading: Any = None
    helpers: list[Helper] = field(default_factory=list)


class RayRunner:
    """Starts runs, listens to them, ends them; a run that dies or falls silent becomes an event."""

    def __init__(self, job: Job, silence_s: float) -> None:
        self.job, self.silence_s = job, silence_s
        self.actors: dict[str, Any] = {}
        self.runs: dict[str, Run] = {}
        self.early: list[Event] = []

    def warm(self, devices: Mapping[str, Device]) -> None:
        """Have the processes of devices start side by side, before there is something to run on them."""
        with contextlib.suppress(ray.exceptions.RayError):
            connect()
            for label, device in devices.items():
                if label not in self.actors and not is_lent(label):
                    self._actor(label, device).warm.remote(self.job.spec)

    def facts(self) -> StudyFacts:
        """Ask a device's process, or else one of its own, for the facts of the study's workload.

        Raises WorkloadError, and SpecError for what does not fit the workload.
        """
        actor = next(iter(self.actors.values()), None)
        if actor is not None:
            return _facts_from(actor, self.job.spec)
        connect()
        actor = device_actor(None)
        try:
            return _facts_from(actor, self.job.spec)
        finally:
            ray.kill(actor)

    def start(self, action: Start, brain: Brain, devices: Mapping[str, Device], now_s: float) -> None:
        """Begin a run on its devices, by label; a failure to begin is the loss of the run."""
        labels = action.devices if isinstance(action, StartTarget) else (action.device,)
        try:
            connect()
            actors = [self._actor(label, devices.get(label)) for label in labels]
            gpus = [is_gpu(devices.get(label)) for label in labels]
            orders = self._orders(self._order(action, brain, now_s), actors, gpus)
            ray.get(
                [actor.start.remote(order) for actor, order in zip(actors, orders, strict=True)],
                timeout=CALL_SECONDS * 6,
            )
            loading = None if is_lent(action.device) else actors[0].warm.remote(self.job.spec)
            helpers = [Helper(*pair) for pair in zip(labels[1:], actors[1:], strict=True)]
            self.runs[action.run] = Run(
                action.run, action.device, actors[0], loading=loading, helpers=helpers
            )
        except (ray.exceptions.RayError, TimeoutError) as error:
            log.warning("runner.start_failed", run=action.run, error=str(error))
            for label in labels:
                self._drop_actor(label)
            self.early.append(RunLost(action.run, 0.0, f"could not be started: {_first_line(error)}"))

    def _orders(self, order: Any, actors: list[Any], gpus: list[bool]) -> list[Any]:
        """Return the order of each actor; several of them get a place to meet at the first."""
        orders = [on_gpu(order) if gpu else order for gpu in gpus]
        if len(actors) == 1:
            return orders
        addresses = ray.get([actor.address.remote() for actor in actors], timeout=LOADING_SECONDS)
        if len(set(addresses)) == 1:
            addresses = [LOOPBACK] * len(actors)
        port = ray.get(actors[0].meet.remote(order.run, addresses[0]), timeout=LOADING_SECONDS)
        return [
            replace(one, seat=Seat(rank, len(actors), addresses[0], port, address))
            for rank, (one, address) in enumerate(zip(orders, addresses, strict=True))
        ]

    def listen(self, seconds: float, now_s: float) -> list[Event]:
        """Return what has happened, waiting up to `seconds` for something."""
        found, self.early = [stamped(event, now_s) for event in self.early], []
        for run in self.runs.values():
            if run.asked is None:
                run.asked = run.actor.poll.remote(run.id, run.fetched)
        if not self.runs:
            time.sleep(0 if found else seconds)
            return found
        ready, _ = ray.wait([run.asked for run in self.runs.values()], num_returns=1, timeout=seconds)
        if ready:
            time.sleep(0.01)  # what arrives together is judged together
        for run in list(self.runs.values()):
            found += [stamped(event, now_s) for event in self._fetch(run)]
            found += [stamped(event, now_s) for event in self._hear_helpers(run)]
        return found

    def _fetch(self, run: Run) -> list[Event]:
        ready, _ = ray.wait([run.asked], timeout=0)
        if not ready:
            return self._lose_if_silent(run)
        try:
            documents = ray.get(run.asked)
        except ray.exceptions.RayError as error:
            return [self._lose(run, f"its process died: {_first_line(error)}")]
        run.asked = None
        if documents:
            run.heard = time.monotonic()
        elif lost := self._lose_if_silent(run):
            return lost
        run.fetched += len(documents)
        if any(document["event"] in FINAL_EVENTS for document in documents):
            self._end(run, any(document["event"] == "RunLost" for document in documents))
        return [event_from_json(document) for document in documents]

    def _hear_helpers(self, run: Run) -> list[Event]:
        """Lose a run of which any later rank is gone; the first to fail may be one of these, too."""
        for helper in run.helpers if run.id in self.runs else ():
            if helper.asked is None:
                helper.asked = helper.actor.poll.remote(run.id, helper.fetched)
            if not ray.wait([helper.asked], timeout=0)[0]:
                patience_s = self.silence_s + (LOADING_SECONDS if run.loading is not None else 0)
                if time.monotonic() - helper.heard > patience_s:
                    return [self._lose(run, f"{helper.device} did not answer for {self.silence_s:.0f} s")]
                continue
            try:
                documents = ray.get(helper.asked)
            except ray.exceptions.RayError as error:
                return [self._lose(run, f"the process of {helper.device} died: {_first_line(error)}")]
            helper.asked, helper.heard = None, time.monotonic()
            helper.fetched += len(documents)
            for event in map(event_from_json, documents):
                if isinstance(event, TargetEnded) and event.state == "failed":
                    self.kill(run.id)
                    return [event]
                if isinstance(event, RunLost):
                    self.kill(run.id)
                    return [event]
        return []

    def tell(self, action: Proceed | StopTrials | StopRun) -> None:
        """Pass a decision on; a run that is gone meanwhile needs none."""
        run = self.runs.get(action.run)
        if run is None:
            return
        if isinstance(action, Proceed):
            run.actor.tell.remote(run.id, action.epoch, Verdict(action.stop, action.pause))
        elif isinstance(action, StopTrials):
            run.actor.tell.remote(run.id, None, Verdict(action.trials))
        elif action.pause:
            run.actor.tell.remote(run.id, None, Verdict(pause=True))
        else:
            run.actor.stop.remote(run.id)

    def kill(self, run_id: str) -> None:
        """End a run together with its processes: none of them may wait for another that is gone."""
        run = self.runs.pop(run_id, None)
        if run is not None:
            for label in (run.device, *(helper.device for helper in run.helpers)):
                self._drop_actor(label)

    def leave(self, label: str) -> None:
        """End the process on a device that was given back; nothing runs on it."""
        self._drop_actor(label)

    def samples(self) -> dict[str, list[dict[str, Any]]]:
        """Return what was sampled on lent devices since the last call; of those that answer at once."""
        asked = {label: actor.sampled.remote() for label, actor in self.actors.items() if is_lent(label)}
        if not asked:
            return {}
        ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=1.0)
        found = {}
        for label, answer in asked.items():
            with contextlib.suppress(ray.exceptions.RayError):
                found[label] = ray.get(answer) if answer in ready else []
        return found

    def close(self) -> None:
        """End every process of the study."""
        for device in list(self.actors):
            self._drop_actor(device)

    def _end(self, run: Run, lost: bool) -> None:
        """Forget a run that is over; the processes of one that several shared end with it if it was lost."""
        if lost and run.helpers:
            self.kill(run.id)
            return
        self.runs.pop(run.id, None)
        for actor in (run.actor, *(helper.actor for helper in run.helpers)):
            actor.forget.remote(run.id)

    def _lose_if_silent(self, run: Run) -> list[Event]:
        """A run may be silent for `silence_s`, and before that for as long as its process loads."""
        if run.loading is not None and ray.wait([run.loading], timeout=0)[0]:
            run.loading, run.heard = None, time.monotonic()
        patience_s = self.silence_s + (LOADING_SECONDS if run.loading is not None else 0)
        if time.monotonic() - run.heard <= patience_s:
            return []
        return [self._lose(run, f"no report for {self.silence_s:.0f} s")]

    def _lose(self, run: Run, reason: str) -> RunLost:
        self.kill(run.id)
        return RunLost(run.id, 0.0, reason)

    def _actor(self, label: str, device: Device | None) -> Any:
        if label not in self.actors:
            self.actors[label] = bubble_actor(label) if is_lent(label) else device_actor(device)
        return self.actors[label]

    def _drop_actor(self, label: str) -> None:
        actor = self.actors.pop(label, None)
        if actor is not None:
            ray.kill(actor)

    def _order(self, action: Start, brain: Brain, now_s: float) -> Any:
        setting = _setting(self.job, brain)
        if isinstance(action, StartContainer):
            return ContainerOrder(
                action.run,
                setting,
                action.members,
                action.from_epoch,
                action.until_epoch,
                action.rungs,
                action.fused,
                keep_models=not brain.state.transfers,
                compiling=compile_chance(brain.state, action, now_s),
            )
        if isinstance(action, StartTarget):
            return TargetOrder(
                action.run,
                setting,
                action.trial,
                action.config,
                action.seed,
                action.epochs,
                action.checkpoint,
                action.variant,
                compile_chance(brain.state, action, now_s),
            )
        if isinstance(action, CheckTransfer):
            return TransferOrder(action.run, setting, action.members)
        return ProfileOrder(
            action.run, setting, action.shapes, action.trials, action.epochs, action.full_width
        )


def _facts_from(actor: Any, spec: dict[str, Any]) -> StudyFacts:
    try:
        return facts_from_json(ray.get(actor.facts.remote(spec), timeout=LOADING_SECONDS))
    except ray.exceptions.RayError as error:
        raise WorkloadError(f"the workload cannot be used: {_first_line(error)}") from error


def stamped(event: Event, now_s: float) -> Event:
    """Return the event with the study's own time, which the device's process does not know."""
    if isinstance(event, ContainerEnded | TargetEnded | Profiled | TransferChecked | RunLost):
        return replace(event, at_s=now_s)
    return event


def study_folder(job: Job) -> Path:
    """Return where a study keeps its checkpoints until it ends."""
    return Path(settings.DATA_DIR) / "studies" / str(job.pk)


def _setting(job: Job, brain: Brain) -> Setting:
    spec = brain.spec
    return Setting(
        workload=spec.workload,
        folder=str(study_folder(job)),
        data_seed=brain.data_seed,
        parameters=spec.parameters,
        scaling=spec.scaling,
        parametrization=spec.parametrization,
        checkpoint_every=spec.checkpoint_every,
        threads=1,
    )


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]
