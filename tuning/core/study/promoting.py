"""The promotion form of ASHA: trials wait at rungs; the best of a rung go on, each once."""

from tuning.core.states import TrialState
from tuning.core.study.applying import end_trial
from tuning.core.study.state import StudyState


def promote_trials(state: StudyState) -> None:
    """Promote from every rung what may be promoted; stop what waits at a rung that is closed.

    A rung is closed once no further trial can reach it; then it promotes at least one, and the rest ends.
    """
    if not state.promoting:
        return
    closed = state.exhausted or len(state.trials) >= state.spec.trials
    for rung in state.rungs:
        closed = closed and not any(
            not trial.ended and trial.held_at is None and trial.epochs < rung for trial in state.trials
        )
        for number in state.ladder.promotable(rung, closed):
            trial = state.trials[number]
            if trial.state == TrialState.WAITING and trial.held_at == rung:
                trial.held_at = None
                trial.passed.append(rung)
                state.ladder.promote(rung, number)
        if closed:
            _stop_rest(state, rung)


def _stop_rest(state: StudyState, rung: int) -> None:
    for trial in state.in_state(TrialState.WAITING):
        if trial.held_at == rung:
            end_trial(state, trial, TrialState.STOPPED, f"not promoted from epoch {rung}")
