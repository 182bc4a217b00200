"""The decisions of a study, in the order in which they are taken.

Verdicts at rungs, new configurations, promotions, profiles, containers, targets, splits, the end. Each step
takes the devices that the ones before it left free.
"""

from tuning.core.states import TrialState
from tuning.core.study import events as ev
from tuning.core.study.actions import Action, Finish, StopRun
from tuning.core.study.applying import apply_event, end_trial
from tuning.core.study.lent import leave_bubbles
from tuning.core.study.placing import place_containers, place_profiles, split_containers
from tuning.core.study.promoting import promote_trials
from tuning.core.study.state import StudyState
from tuning.core.study.targets import (
    place_early_target,
    place_targets,
    resume_targets,
    should_close,
    stop_superseded,
)
from tuning.core.study.transferring import place_transfer_check, refuse_transfer
from tuning.core.study.verdicts import verdicts
from tuning.core.study.widening import narrow_target, widen_target

PLENTY = 1000  # waiting trials are enough to pack well; a study of 100,000 need not hold all of them at once


def decide(state: StudyState, now_s: float, free_devices: list[str] | None) -> list[Action]:
    """Return what to do now and remember that it was asked for. The same state gives the same actions."""
    if state.finished:
        return []
    _watch_deadline(state, now_s)
    refuse_transfer(state)
    actions: list[Action] = list(verdicts(state))
    if state.cut or state.closing:
        actions += _stop_everything(state)
    if not state.cut:
        free = _free(state, free_devices)
        actions += resume_targets(state, free, now_s)
        if not state.closing:
            _ask(state, len(free))
            promote_trials(state)
            actions += place_profiles(state, free, now_s)
            actions += place_transfer_check(state, free, now_s)
            actions += place_early_target(state, free, now_s)
            actions += place_containers(state, free, now_s)
        actions += place_targets(state, free, now_s)
        actions += stop_superseded(state, free)
        actions += narrow_target(state, free)
        moves = leave_bubbles(state, free) or split_containers(state, free)
        actions += moves or widen_target(state, free)
    actions += _finish(state)
    return actions


def _free(state: StudyState, free_devices: list[str] | None) -> list[str]:
    busy = state.busy_devices()
    offered = state.devices if free_devices is None else free_devices
    return [device for device in offered if device not in busy]


def _watch_deadline(state: StudyState, now_s: float) -> None:
    deadline = state.spec.deadline_s
    if deadline is None or state.cut:
        return
    if now_s >= deadline:
        apply_event(ev.Cut("deadline"), state)
    elif not state.closing and should_close(state, now_s, deadline):
        state.closing = True
        for trial in state.in_state(TrialState.WAITING, TrialState.RUNNING):
            end_trial(state, trial, TrialState.CUT, "deadline: the target model needs the time that is left")


def _stop_everything(state: StudyState) -> list[Action]:
    """End all containers and checks, and all targets too where the study is cut."""
    runs = [container.id for container in state.active_containers() if container.awaiting is None]
    runs += list(state.checks())
    if state.cut:
        runs += [str(target.run) for target in state.running_targets()]
    wanted = [run for run in runs if run not in state.stopping]
    state.stopping.update(wanted)
    return [StopRun(run, pause=False) for run in wanted]


def _ask(state: StudyState, free: int) -> None:
    """Ask the searcher for more configurations: a batch, or, where results do not matter, plenty."""
    left = state.spec.trials - len(state.trials)
    if left <= 0 or state.exhausted:
        return
    batch, waiting = state.searcher.batch, state.count(TrialState.WAITING)
    if batch is not None and (not free or waiting):
        return
    wanted = min(left, PLENTY - waiting if batch is None else batch * free)
    if wanted <= 0:
        return
    configs = state.searcher.ask(wanted)
    for config in configs:
        state.add_trial(config)
    state.exhausted = len(configs) < wanted


def _finish(state: StudyState) -> list[Action]:
    over = state.cut or state.closing or state.search_over()
    running = state.active_containers() or state.running_targets() or state.profiling or state.checks()
    waiting = any(target.state == "waiting" for target in state.all_targets()) and not state.cut
    if not over or running or waiting:
        return []
    if state.cut or (state.closing and not state.targets):
        state.finished, reason = "cut", state.cut or "deadline"
    else:
        has_best = bool(_full_models(state))
        state.finished = "completed" if has_best else "failed"
        reason = "" if has_best else _why_nothing(state)
    return [Finish(state.finished, reason or None)]


def _full_models(state: StudyState) -> list[int]:
    if state.transfers:
        return [t.trial for t in state.all_targets() if t.metric is not None]
    return [t.number for t in state.in_state(TrialState.COMPLETED)]


def _why_nothing(state: StudyState) -> str:
    if not state.best_order():
        return "no valid trial"
    reasons = [target.reason for target in state.targets.values() if target.reason]
    return f"no target model was trained: {reasons[0]}" if reasons else "no target model was trained"
