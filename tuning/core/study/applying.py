"""How each event changes a study. No decision is taken here."""

import math
from collections.abc import Mapping
from functools import singledispatch

from tuning.core.containers import profile_from_json
from tuning.core.states import TrialState
from tuning.core.study import events as ev
from tuning.core.study.compiling import remember_decision
from tuning.core.study.records import Container, Metrics, Target, Trial
from tuning.core.study.state import StudyState

ALONE_AFTER_LOSSES = 2  # from then on a trial shares its container with nobody
MOST_LOSSES = 3  # a trial whose process died this often, the last time while it ran alone, has failed
MOST_TARGET_ATTEMPTS = 3


@singledispatch
def apply_event(event: ev.Event, state: StudyState) -> None:
    """Change the state by one event; an event of a run that is over changes nothing."""
    raise TypeError(f"not an event of a study: {event!r}")


@apply_event.register
def _(event: ev.DevicesChanged, state: StudyState) -> None:
    state.devices = tuple(event.devices)


@apply_event.register
def _(event: ev.RoomChanged, state: StudyState) -> None:
    state.room_s = dict(event.step_s)


@apply_event.register
def _(event: ev.Profiled, state: StudyState) -> None:
    if event.run not in state.profiling:
        return
    _, shapes = state.profiling.pop(event.run)
    _end_chore(state, event.run, event.at_s)
    state.profiling_s += event.seconds
    for document in event.profiles:
        profile = profile_from_json(document)
        state.profiles[profile.shape] = profile
        if profile.reason:
            _warn(state, f"trials with {profile.shape} are not fused: {profile.reason}")
    state.target_step_s.update(event.target_step_s)
    state.target_half_s.update(event.target_half_s)
    state.target_bytes.update(event.target_bytes)
    for shape in shapes:
        state.profiles.setdefault(shape, state.profile_of(shape))


def _end_chore(state: StudyState, run: str, at_s: float) -> None:
    chore = state.chores.get(run)
    if chore is not None and chore.end_s is None:
        chore.end_s = at_s


@apply_event.register
def _(event: ev.TransferWanted, state: StudyState) -> None:
    state.transfer_wanted = not state.checks()


@apply_event.register
def _(event: ev.TransferChecked, state: StudyState) -> None:
    if event.run not in state.checks():
        return
    _end_chore(state, event.run, event.at_s)
    state.transfer_s += event.seconds
    state.stopping.discard(event.run)
    state.transfer = dict(event.report)
    if state.transfer.get("verdict") == "failed":
        _warn(
            state, f"the transfer check failed: {state.transfer.get('reason')}; surrogate ranks may not hold"
        )


@apply_event.register
def _(event: ev.Reported, state: StudyState) -> None:
    container = state.containers.get(event.run)
    if container is None or not container.active:
        return
    container.epoch = max(container.epoch, event.epoch)
    for number, seconds in event.device_seconds.items():
        trial = state.trials[number]
        trial.spent[event.run] = max(trial.spent.get(event.run, 0.0), seconds)
    for number, metrics in event.metrics.items():
        trial = state.trials[number]
        if trial.run == event.run and trial.state == TrialState.RUNNING:
            _record(state, trial, event.epoch, metrics)
    if event.epoch in state.rungs and event.epoch < container.until_epoch and state.members(container):
        container.awaiting = event.epoch


def _record(state: StudyState, trial: Trial, epoch: int, metrics: Mapping[str, float | None]) -> None:
    if epoch > trial.epochs:
        trial.metrics[epoch] = clean(metrics)
        trial.epochs = epoch
        state.changes += 1
    if epoch in state.rungs:
        value = trial.metrics.get(epoch, {}).get(state.facts.metric)
        state.ladder.record(epoch, trial.number, value)
    if epoch >= state.epochs:
        complete(state, trial)


def clean(metrics: Mapping[str, float | None]) -> Metrics:
    """Return metrics with every non-finite number as None, as strict JSON has it."""
    return {
        name: float(value) if value is not None and math.isfinite(value) else None
        for name, value in metrics.items()
    }


def complete(state: StudyState, trial: Trial) -> None:
    """End a trial that trained to its end: completed with a finite metric, otherwise failed."""
    name = state.facts.metric
    seen = sorted({metric for metrics in trial.metrics.values() for metric in metrics})
    if name not in seen:
        saw = f"; saw: {', '.join(seen)}" if seen else "; nothing was reported"
        end_trial(state, trial, TrialState.FAILED, f"metric `{name}` never reported{saw}")
        return
    last = max(epoch for epoch, metrics in trial.metrics.items() if name in metrics)
    if trial.metrics[last][name] is None:
        end_trial(state, trial, TrialState.FAILED, f"non-finite metric `{name}` at epoch {last}")
    else:
        end_trial(state, trial, TrialState.COMPLETED, None)


def end_trial(state: StudyState, trial: Trial, to: TrialState, reason: str | None) -> None:
    """End a trial once: its state, its reason, its place in the order, and the searcher's lesson."""
    if trial.ended:
        return
    state.move(trial, to)
    trial.reason, trial.run = reason, None
    trial.ended_order = state.ended_count
    state.ended_count += 1
    if to != TrialState.CUT:
        value = None if to == TrialState.FAILED else trial.metric(state.facts.metric)
        state.searcher.tell(trial.number, value)


@apply_event.register
def _(event: ev.Checkpointed, state: StudyState) -> None:
    container = state.containers.get(event.run)
    if container is None or not container.active:
        return
    for trial in state.members(container):
        trial.checkpoint, trial.checkpoint_epoch = event.path, event.epoch


@apply_event.register
def _(event: ev.TrialFailed, state: StudyState) -> None:
    trial = state.trials[event.trial]
    if trial.run == event.run and trial.state == TrialState.RUNNING:
        end_trial(state, trial, TrialState.FAILED, event.reason)


@apply_event.register
def _(event: ev.ModelSaved, state: StudyState) -> None:
    state.trials[event.trial].model = event.path


@apply_event.register
def _(event: ev.ContainerEnded, state: StudyState) -> None:
    container = state.containers.get(event.run)
    if container is None or not container.active:
        return
    for trial in state.members(container):
        if event.outcome == "paused":
            trial.checkpoint, trial.checkpoint_epoch = event.path, event.epoch
            _wait(state, trial)
            if state.promoting and event.epoch in state.rungs:
                trial.held_at = event.epoch
        elif event.outcome == "stopped":
            _wait(state, trial)
        else:
            complete(state, trial)
    state.repacking_s[event.run] = event.repacking_s
    _close(state, container, event.at_s, event.outcome)
    if event.note:
        container.note = event.note
        _warn(state, event.note)


def _wait(state: StudyState, trial: Trial) -> None:
    """Back to waiting: from the checkpoint, or from scratch where there is none."""
    state.move(trial, TrialState.WAITING)
    trial.run = None


def _close(state: StudyState, container: Container, at_s: float, outcome: str) -> None:
    container.end_s, container.outcome, container.awaiting = at_s, outcome, None
    state.stopping.discard(container.id)


@apply_event.register
def _(event: ev.RunLost, state: StudyState) -> None:
    if event.run in state.profiling:
        _, shapes = state.profiling.pop(event.run)
        _end_chore(state, event.run, event.at_s)
        for shape in shapes:
            state.profiles.setdefault(shape, state.profile_of(shape))
        _warn(state, f"profiling was lost ({event.reason}); costs are guessed")
    if event.run in state.checks():
        _end_chore(state, event.run, event.at_s)
        state.stopping.discard(event.run)
        reason = f"its process was lost: {event.reason}"
        state.transfer = {"verdict": "not possible", "reason": reason, "coordinate_check": "not possible"}
    for target in state.running_targets():
        if target.run == event.run:
            _lose_target(state, target, event)
    container = state.containers.get(event.run)
    if container is not None and container.active:
        members = state.members(container)
        for trial in members:
            _lose_trial(state, trial, event, alone=len(members) == 1, fresh=container.from_epoch == 0)
        _close(state, container, event.at_s, "lost")
        container.note = event.reason


def _lose_trial(state: StudyState, trial: Trial, event: ev.RunLost, alone: bool, fresh: bool) -> None:
    """Back to waiting; failed where it broke alone and from scratch, or was lost too often."""
    _wait(state, trial)
    if event.taken:
        return
    trial.losses += 1
    if event.broken:
        trial.losses = max(trial.losses, ALONE_AFTER_LOSSES)
        trial.checkpoint, trial.checkpoint_epoch = None, 0
        if alone and fresh:
            end_trial(state, trial, TrialState.FAILED, event.reason)
    elif alone and trial.losses >= MOST_LOSSES:
        reason = f"its process was lost {trial.losses} times, the last time: {event.reason}"
        end_trial(state, trial, TrialState.FAILED, reason)


def _lose_target(state: StudyState, target: Target, event: ev.RunLost) -> None:
    wide = bool(target.beside)
    _leave_devices(target, event.at_s)
    if event.taken:
        target.attempts -= 1
    # what several devices could not do together, one may do
    broken = event.broken and not wide
    if event.broken and wide:
        target.alone = True
        _warn(state, f"the target of trial {target.trial} goes on on one device: {event.reason}")
    hopeless = broken and target.checkpoint is None
    lost_for_good = hopeless or target.attempts >= MOST_TARGET_ATTEMPTS
    if broken:
        target.checkpoint = None
    target.state = "failed" if lost_for_good else "cut" if state.cut else "waiting"
    target.reason = event.reason if lost_for_good else None
    state.stopping.discard(event.run)


def _leave_devices(target: Target, at_s: float) -> None:
    target.run, target.device, target.end_s = None, None, at_s
    target.beside, target.pausing = [], False


def _target_of(state: StudyState, run: str) -> Target | None:
    return next((target for target in state.running_targets() if target.run == run), None)


@apply_event.register
def _(event: ev.CompileDecided, state: StudyState) -> None:
    container = state.containers.get(event.run)
    if _target_of(state, event.run) is None and (container is None or not container.active):
        return
    state.compiling_s[event.run] = max(state.compiling_s.get(event.run, 0.0), event.seconds)
    remember_decision(state, event.run, event.decision)


@apply_event.register
def _(event: ev.TargetReported, state: StudyState) -> None:
    target = _target_of(state, event.run)
    if target is None:
        return
    target.spent[event.run] = max(target.spent.get(event.run, 0.0), event.device_seconds)
    if event.epoch > target.epochs:
        target.epochs = event.epoch
        target.metrics[event.epoch] = clean(event.metrics)


@apply_event.register
def _(event: ev.TargetCheckpointed, state: StudyState) -> None:
    target = _target_of(state, event.run)
    if target is not None:
        target.checkpoint = event.path


@apply_event.register
def _(event: ev.TargetEnded, state: StudyState) -> None:
    target = _target_of(state, event.run)
    if target is None:
        return
    if event.state == "paused" and state.cut is None:
        _leave_devices(target, event.at_s)
        target.attempts -= 1
        target.state, target.paused = "waiting", True
        state.stopping.discard(event.run)
        return
    finite = event.metric is not None and math.isfinite(event.metric)
    superseded = event.state == "cut" and state.cut is None
    target.state = "stopped" if superseded else "cut" if event.state == "paused" else event.state
    target.end_s, target.reason = event.at_s, "superseded" if superseded else event.reason
    target.metric, target.model = event.metric if finite else None, event.model
    if event.state == "completed" and not finite:
        target.state, target.reason = "failed", f"non-finite metric `{state.facts.metric}`"
    target.run, target.pausing = None, False
    state.stopping.discard(event.run)


@apply_event.register
def _(event: ev.Cut, state: StudyState) -> None:
    if state.finished or state.cut:
        return
    state.cut = event.reason
    for trial in state.in_state(TrialState.WAITING, TrialState.RUNNING):
        end_trial(state, trial, TrialState.CUT, event.reason)


@apply_event.register
def _(event: ev.Resumed, state: StudyState) -> None:
    state.cut, state.finished, state.closing = None, None, False
    for trial in state.in_state(TrialState.CUT):
        state.move(trial, TrialState.WAITING)
        trial.reason, trial.ended_order = None, None
    for target in state.all_targets():
        if target.state == "cut":
            target.state, target.reason = "waiting", None


def _warn(state: StudyState, text: str) -> None:
    if text not in state.warnings:
        state.warnings.append(text)
