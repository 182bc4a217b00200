"""Devices of a study's own and bubbles lent by other jobs: who begins where, and who moves out of a bubble.

Early rungs go to bubbles, leaders to devices of the study's own (Hydro, OSDI 2023, section 5.2).
"""

from tuning.core.states import TrialState
from tuning.core.study.actions import Action, StopRun
from tuning.core.study.records import Container, Target
from tuning.core.study.state import StudyState

BUBBLES = "bubble:"  # labels of devices that are lent for moments only begin so


def is_lent(device: str | None) -> bool:
    """Whether a device's label means the bubbles of one."""
    return device is not None and device.startswith(BUBBLES)


def take_own(free: list[str]) -> str:
    """Take a device of the study's own; bubbles of another job only where that is all."""
    found = next((device for device in free if not is_lent(device)), free[0])
    free.remove(found)
    return found


def take_for(free: list[str], count: int) -> list[str]:
    """Take devices for so many containers, in the order of `free`; bubbles where own ones do not suffice."""
    own = [device for device in free if not is_lent(device)][:count]
    lent = [device for device in free if is_lent(device)][: count - len(own)]
    taken = [device for device in free if device in own or device in lent]
    free[:] = [device for device in free if device not in taken]
    return taken


def leave_bubbles(state: StudyState, free: list[str]) -> list[Action]:
    """Let the leader of what runs in bubbles move to a device of the study's own that has nothing to do."""
    own = [device for device in free if not is_lent(device) and device in (state.devices or free)]
    if not own or state.cut or state.closing or state.profiling or _something_waits(state):
        return []
    target = _slow_target(state)
    if target is not None:
        run = str(target.run)
        state.stopping.add(run)
        return [StopRun(run, pause=False)]
    container = _leading(state)
    if container is None:
        return []
    container.pausing = True
    return [StopRun(container.id, pause=True)]


def _something_waits(state: StudyState) -> bool:
    trials = any(trial.held_at is None for trial in state.in_state(TrialState.WAITING))
    targets = any(target.state == "waiting" for target in state.all_targets())
    return trials or targets or any(container.pausing for container in state.active_containers())


def _slow_target(state: StudyState) -> Target | None:
    """The best target in bubbles; it goes on from its checkpoint, so one that has none yet stays."""
    order = {trial: rank for rank, trial in enumerate(state.best_order())}
    found = [
        target
        for target in state.running_targets()
        if is_lent(target.device) and target.checkpoint and not target.variant
    ]
    if any(target.run in state.stopping for target in found):
        return None
    return min(found, key=lambda target: order.get(target.trial, len(order)), default=None)


def _leading(state: StudyState) -> Container | None:
    """The container in bubbles that has come farthest and has epochs left after the one it pauses at."""
    if not state.facts.resumable:
        return None
    able = [
        container
        for container in state.active_containers()
        if is_lent(container.device)
        and container.awaiting is None
        and container.id not in state.stopping
        and state.epochs - container.epoch > 1
    ]
    return max(able, key=lambda container: (container.epoch, container.id), default=None)
