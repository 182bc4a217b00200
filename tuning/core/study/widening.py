"""Data-parallel targets: devices that nothing else of a study can use help to train a target.

Fused containers are split first, for their parts need no exchange; a target takes only what is left. It is
asked to pause, which it does with a checkpoint at the end of an epoch, when others need its devices, and once
for each of its attempts when more devices have become idle.
"""

import math

from tuning.core.states import TrialState
from tuning.core.study.actions import Action, StopRun
from tuning.core.study.applying import MOST_TARGET_ATTEMPTS
from tuning.core.study.lent import is_lent
from tuning.core.study.placing import container_to_split
from tuning.core.study.records import Target
from tuning.core.study.state import StudyState
from tuning.core.study.verdicts import repack_seconds
from tuning.core.study.width import StepCost, Width, best_width, suitable

JOIN_S = 3.0  # until all ranks have loaded their data and found each other
UNMEASURED = "a step of the full model was not measured"
SURE = 2.0  # what a running target gains must be this many times what its interruption costs


def spare_devices(state: StudyState, free: list[str]) -> list[str]:
    """Return the study's own idle devices that no trial, profile, check, split or move can use now."""
    if state.cut or state.profiling or state.transfer_wanted or _trials_come(state):
        return []
    containers = state.active_containers()
    busy = [run.device for run in containers] + [target.device for target in state.running_targets()]
    idle = [device for device in free if not is_lent(device) and device in (state.devices or free)]
    if not idle or any(map(is_lent, busy)) or any(container.pausing for container in containers):
        return []
    return [] if container_to_split(state, idle) else idle


def _trials_come(state: StudyState) -> bool:
    """Whether trials wait for a device, or the search may ask for more."""
    if state.closing:
        return False
    more = not state.exhausted and len(state.trials) < state.spec.trials
    return more or any(trial.held_at is None for trial in state.in_state(TrialState.WAITING))


def take_beside(state: StudyState, target: Target, device: str, free: list[str], needed: int) -> list[str]:
    """Take the further devices of a target that starts on `device`; `needed` of `free` are for others.

    The target's note says why it has so many.
    """
    spare = [] if is_lent(device) else suitable(device, spare_devices(state, free))
    spare = spare[: max(len(free) - needed, 0)]
    target.note = None
    if not spare:
        return []
    plan = plan_width(state, target, device, spare, target.attempts)
    target.note = plan.reason
    beside = spare[: plan.ranks - 1] if _gain_s(state, target, plan) > JOIN_S else []
    if plan.ranks > 1 and not beside:
        target.note = f"{plan.reason}, but not for long enough to be worth it"
    free[:] = [label for label in free if label not in beside]
    return beside


def plan_width(state: StudyState, target: Target, device: str, spare: list[str], lost: int) -> Width:
    """Return on how many of these devices a target should train, and why; `lost` attempts were in vain."""
    if state.facts.undivided is not None:
        return Width(1, 1.0, state.facts.undivided)
    if target.alone or lost >= MOST_TARGET_ATTEMPTS - 1:
        return Width(1, 1.0, "its processes on several devices were lost before")
    trial = state.trials[target.trial]
    cost = step_cost(state, trial.shape)
    if cost is None:
        return Width(1, 1.0, UNMEASURED)
    return best_width(cost, state.facts.batch_size_of(trial.config), device, spare)


def step_cost(state: StudyState, shape: str) -> StepCost | None:
    """Return what was measured of a step of the full model of a shape; None where nothing was."""
    whole_s, half_s = state.target_step_s.get(shape), state.target_half_s.get(shape)
    if not whole_s or half_s is None or shape not in state.target_bytes:
        return None
    return StepCost(whole_s, half_s, state.target_bytes[shape])


def _gain_s(state: StudyState, target: Target, plan: Width) -> float:
    """Return the seconds a target is predicted to save, as long as nobody is expected to need the devices."""
    whole_s = state.target_seconds(state.trials[target.trial]) or 0.0
    left_s = whole_s * (1 - target.epochs / state.target_epochs) / plan.speedup
    quiet_s = min((state.remaining_s(run) for run in state.active_containers()), default=math.inf)
    return min(left_s, quiet_s) * (plan.speedup - 1)


def widen_target(state: StudyState, free: list[str]) -> list[Action]:
    """Pause the best target that runs on one device, so that it goes on with idle ones beside it."""
    if state.facts.undivided is not None or _waiting(state):
        return []
    order = {trial: rank for rank, trial in enumerate(state.best_order())}
    running = sorted(state.running_targets(), key=lambda one: order.get(one.trial, len(order)))
    spare = spare_devices(state, free) if running else []
    if not spare or any(target.pausing for target in running):
        return []
    for target in running:
        if _may_widen(state, target) and _pays(state, target, spare):
            target.pausing, target.widened = True, target.attempts
            return [StopRun(str(target.run), pause=True)]
    return []


def _may_widen(state: StudyState, target: Target) -> bool:
    busy = target.beside or target.run in state.stopping or target.widened >= target.attempts
    return not busy and not is_lent(target.device) and state.target_epochs - target.epochs > 1


def _pays(state: StudyState, target: Target, spare: list[str]) -> bool:
    device = str(target.device)
    plan = plan_width(state, target, device, suitable(device, spare), target.attempts - 1)
    return plan.ranks > 1 and _gain_s(state, target, plan) > SURE * (JOIN_S + repack_seconds(state))


def narrow_target(state: StudyState, free: list[str]) -> list[Action]:
    """Pause the worst of the targets on several devices, where something waits and no device is free."""
    if free or not _waiting(state):
        return []
    running = state.running_targets()
    wide = [target for target in running if target.beside and target.run not in state.stopping]
    if not wide or any(target.pausing for target in running):
        return []
    order = {trial: rank for rank, trial in enumerate(state.best_order())}
    last = max(wide, key=lambda target: (order.get(target.trial, len(order)), target.variant))
    last.pausing = True
    return [StopRun(str(last.run), pause=True)]


def _waiting(state: StudyState) -> bool:
    """Whether a trial or a target waits for a device, or a check that somebody asked for."""
    targets = any(target.state == "waiting" for target in state.all_targets())
    trials = any(trial.held_at is None for trial in state.in_state(TrialState.WAITING))
    return targets or (trials and not state.closing) or state.transfer_wanted
