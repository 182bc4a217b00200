"""Verdicts: which trials of a container that waits at a rung go on, and whether it pauses to be repacked."""

from tuning.core.containers import REPACK_S, should_merge
from tuning.core.halving import ranked
from tuning.core.states import TrialState
from tuning.core.study.actions import Proceed
from tuning.core.study.applying import end_trial
from tuning.core.study.records import Container, Trial
from tuning.core.study.state import StudyState


def verdicts(state: StudyState) -> list[Proceed]:
    """Judge every waiting container. All results that are in were recorded before the first is judged."""
    return [
        _judge(state, container) for container in state.active_containers() if container.awaiting is not None
    ]


def _judge(state: StudyState, container: Container) -> Proceed:
    epoch = container.awaiting or 0
    container.awaiting = None
    members = [trial for trial in state.members(container) if trial.epochs >= epoch]
    if not members:
        return Proceed(container.id, epoch, tuple(container.trials), pause=False)
    if state.promoting:
        container.pausing = True
        return Proceed(container.id, epoch, (), pause=True)
    stopped = _stop_losers(state, members, epoch)
    left = [trial for trial in members if not trial.ended]
    pause = bool(left) and (container.pausing or _should_pause(state, container, len(left), epoch))
    container.pausing = pause
    return Proceed(container.id, epoch, tuple(trial.number for trial in stopped), pause)


def _stop_losers(state: StudyState, members: list[Trial], epoch: int) -> list[Trial]:
    """Stop the trials whose rank is too low; a trial that was let through once stays let through."""
    kept = state.ladder.survivors(epoch, [trial.number for trial in members])
    order = ranked(state.ladder.results[epoch], state.facts.mode)
    losers = [trial for trial in members if trial.number not in kept and epoch not in trial.passed]
    for trial in members:
        if trial.number in kept and epoch not in trial.passed:
            trial.passed.append(epoch)
    share = max(1, len(order) // state.spec.scheduler.reduction)
    for trial in losers:
        rank = order.index(trial.number) + 1
        reason = f"rank {rank} of {len(order)} at epoch {epoch}, where the best {share} go on"
        end_trial(state, trial, TrialState.STOPPED, reason)
    return losers


def _should_pause(state: StudyState, container: Container, size: int, epoch: int) -> bool:
    """Pause where survivors of trials still to come would share a container with these."""
    if not state.facts.resumable or not state.facts.fusable:
        return False
    limit = state.limit_of(container.shape)
    others = _expected_company(state, container.shape, epoch)
    profile = state.profile_of(container.shape)
    return should_merge(profile, size, others, limit, state.epochs - epoch, repack_seconds(state))


def _expected_company(state: StudyState, shape: str, epoch: int) -> int:
    """Trials of this shape that wait at this epoch, plus the share of earlier ones that will get here."""
    share = 0.0
    for trial in state.in_state(TrialState.WAITING):
        if trial.held_at is None and trial.checkpoint_epoch <= epoch and trial.shape == shape:
            ahead = sum(trial.checkpoint_epoch < rung <= epoch for rung in state.rungs)
            share += state.spec.scheduler.reduction**-ahead
    return int(share)


def repack_seconds(state: StudyState) -> float:
    """Return the mean measured cost of ending and rebinding a container, or a guess."""
    measured = [seconds for seconds in state.repacking_s.values() if seconds > 0]
    return sum(measured) / len(measured) if measured else REPACK_S
