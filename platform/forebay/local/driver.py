"""Drives a study on device processes: carries out its actions, feeds it their events."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from forebay.local.devices import DeviceProcess, ready, torch_device
from forebay.local.folder import StudyFolder
from tuning.core.study import (
    Action,
    CheckTransfer,
    ContainerEnded,
    Cut,
    DevicesChanged,
    Event,
    Finish,
    Proceed,
    Profile,
    Profiled,
    RunLost,
    StartContainer,
    StartTarget,
    StopRun,
    StopTrials,
    Study,
    TargetEnded,
    TransferChecked,
    compile_chance,
)
from workers.trainer.orders import (
    ContainerOrder,
    ProfileOrder,
    Seat,
    Setting,
    TargetOrder,
    TransferOrder,
    Verdict,
)

POLL_S = 0.25
SNAPSHOT_EVERY_S = 1.0
LOOPBACK = "127.0.0.1"
CUT_GRACE_S = 15.0  # how long runs may take to save what they have after a deadline or an interrupt

_ENDINGS = (ContainerEnded, TargetEnded, Profiled, TransferChecked)
Watcher = Callable[[Study, float], None]


class LocalDriver:
    """One study, its folder and its device processes."""

    def __init__(
        self,
        study: Study,
        folder: StudyFolder,
        devices: list[DeviceProcess],
        setting: Setting,
        started_s: float,
        watcher: Watcher | None = None,
        share_cores: bool = False,
        spare_work: Callable[[], None] | None = None,
    ) -> None:
        self.study, self.folder, self.setting = study, folder, setting
        self.devices = {device.name: device for device in devices}
        self.started_s = started_s
        self.watcher = watcher
        self.share_cores = share_cores
        self.spare_work = spare_work
        self.saved_s = 0.0
        self.cut_at_s: float | None = None
        self.finish: Finish | None = None
        self.cores_of: dict[str, int] = {}  # run -> CPU threads it was given beyond its own
        self.gathering: dict[str, StartTarget] = {}  # data-parallel targets whose meeting is not open yet
        self.leads: dict[str, str] = {}  # data-parallel run -> device of its first rank

    def now(self) -> float:
        """Return seconds since the study began, its earlier lives included."""
        return time.monotonic() - self.started_s

    def run(self) -> Finish:
        """Drive the study to its end."""
        self.study.apply(DevicesChanged(tuple(self.devices)))
        while self.finish is None:
            try:
                self._turn()
            except KeyboardInterrupt:
                if self.study.state.cut:
                    raise
                self.study.apply(Cut("interrupted"))
        self.folder.save(self.study, self.now())
        return self.finish

    def _turn(self) -> None:
        for action in self.study.decide(self.now()):
            self._carry_out(action)
        if self.finish is not None:
            return
        self._use_spare_time()
        self._share_cores()
        for device in ready(list(self.devices.values()), self._wait_s()):
            self._read(device)
        self._watch_processes()
        if self.now() - self.saved_s > SNAPSHOT_EVERY_S:
            self.saved_s = self.now()
            self.folder.save(self.study, self.saved_s)
            if self.watcher is not None:
                self.watcher(self.study, self.saved_s)

    def _use_spare_time(self) -> None:
        """Do what can wait for an idle device, once only targets are left and a device is free."""
        running = {str(target.run) for target in self.study.state.running_targets()}
        idle = len(self.study.state.busy_devices()) < len(self.devices)
        if self.spare_work is not None and running and idle and not set(self.study.active_runs()) - running:
            work, self.spare_work = self.spare_work, None
            work()

    def _share_cores(self) -> None:
        """Give the cores of idle devices to the targets that are left, once nothing else is running."""
        if not self.share_cores:
            return
        running = {str(target.run) for target in self.study.state.running_targets()}
        if not running or set(self.study.active_runs()) - running or not self._all_cores():
            return
        share = max(1, self._all_cores() // len(running))
        for run in running:
            if self.cores_of.get(run, self.setting.threads) != share:
                self.cores_of[run] = share
                self._tell(run, "threads", share)

    def _all_cores(self) -> int:
        """Return the cores of all devices together; 0 where devices are no cores."""
        if any(torch_device(name) != "cpu" for name in self.devices):
            return 0
        return len(self.devices) * (self.setting.threads or 1)

    def _wait_s(self) -> float:
        deadline = self.study.spec.deadline_s
        return POLL_S if deadline is None else min(POLL_S, max(deadline - self.now(), 0.01))

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Finish):
            self.finish = action
        elif isinstance(action, StartTarget) and action.beside:
            self._gather(action)
        elif isinstance(action, Profile | CheckTransfer | StartContainer | StartTarget):
            self._device(action.device).begin(self._order(action))
        elif isinstance(action, Proceed):
            self._tell(action.run, "verdict", Verdict(action.stop, action.pause))
        elif isinstance(action, StopTrials):
            self._tell(action.run, "pending", Verdict(action.trials))
        elif isinstance(action, StopRun) and action.pause:
            self._tell(action.run, "pending", Verdict(pause=True))
        elif isinstance(action, StopRun):
            self._tell(action.run, "stop")

    def _gather(self, action: StartTarget) -> None:
        """Give a run all of its devices and open its meeting; the orders follow once it is open."""
        devices = [self._device(name) for name in action.devices]
        for device in devices:
            device.run, device.heard_s = action.run, time.monotonic()
        self.gathering[action.run], self.leads[action.run] = action, action.device
        devices[0].send(("meet", action.run))

    def _seat(self, run: str, port: int) -> None:
        """Hand every rank its order, now that they have a place to meet."""
        action = self.gathering.pop(run, None)
        if action is None:
            return
        for rank, name in enumerate(action.devices):
            order = self._order(replace(action, device=name))
            seat = Seat(rank, len(action.devices), LOOPBACK, port)
            self.devices[name].send(("order", replace(order, seat=seat)))
        if run in self.study.state.stopping:
            self._tell(run, "stop")

    def _device(self, name: str) -> DeviceProcess:
        device = self.devices[name]
        if device.process is None:
            device.start()
        return device

    def _tell(self, run: str, kind: str, *rest: Any) -> None:
        for device in self.devices.values():
            if device.run == run:
                device.send((kind, run, *rest))

    def _order(self, action: Profile | CheckTransfer | StartContainer | StartTarget) -> Any:
        setting = replace(self.setting, device=torch_device(action.device))
        if isinstance(action, CheckTransfer):
            return TransferOrder(action.run, setting, action.members)
        if isinstance(action, Profile):
            return ProfileOrder(
                action.run, setting, action.shapes, action.trials, action.epochs, action.full_width
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
                compile_chance(self.study.state, action, self.now()),
            )
        return ContainerOrder(
            action.run,
            setting,
            action.members,
            action.from_epoch,
            action.until_epoch,
            action.rungs,
            fused=action.fused,
            keep_models=self.study.spec.scaling == 1,
            compiling=compile_chance(self.study.state, action, self.now()),
        )

    def _read(self, device: DeviceProcess) -> None:
        """Take everything a device has to say; a closed pipe is a lost run."""
        assert device.pipe is not None
        try:
            while device.pipe.poll():
                self._hear(device, device.pipe.recv())
        except (EOFError, OSError):
            self._lose(device, device.lost_reason())

    def _hear(self, device: DeviceProcess, message: Any) -> None:
        device.heard_s = time.monotonic()
        if isinstance(message, Event):
            if isinstance(message, _ENDINGS):
                message = replace(message, at_s=self.now())
                _leave(device, message.run)
            if not self._is_echo(device, message):
                self.study.apply(message)
        elif message[0] == "meeting":
            self._seat(message[1], message[2])
        elif message[0] in ("broken", "parted"):
            _leave(device, message[1])
            self._lose_run(message[1], message[2], broken=message[0] == "broken")

    def _is_echo(self, device: DeviceProcess, event: Event) -> bool:
        """Whether a later rank says that its run has ended, which the first one reports."""
        if not isinstance(event, TargetEnded) or event.state == "failed":
            return False
        return self.leads.get(event.run, device.name) != device.name

    def _lose(self, device: DeviceProcess, reason: str) -> None:
        run = device.run
        device.kill()
        if run is not None:
            self._lose_run(run, reason)

    def _lose_run(self, run: str, reason: str, broken: bool = False) -> None:
        """Take a run for lost; the processes of other ranks, which may wait for each other, end with it."""
        self.gathering.pop(run, None)
        for device in self.devices.values():
            if device.run == run:
                device.kill()
        self.study.apply(RunLost(run, self.now(), reason, broken=broken))

    def _watch_processes(self) -> None:
        for device in self.devices.values():
            if device.hangs():
                self._lose(device, "no batch and no message for too long")
        if not self.study.state.cut:
            return
        self.cut_at_s = self.cut_at_s if self.cut_at_s is not None else self.now()
        if self.now() - self.cut_at_s > CUT_GRACE_S:
            for device in self.devices.values():
                if device.run is not None:
                    self._lose(device, "did not end in time")


def _leave(device: DeviceProcess, run: str) -> None:
    if device.run == run:  # it may have got the next order already
        device.run = None
