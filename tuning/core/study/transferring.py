"""The transfer report of a study: when it is worth making, with which trials, and what follows from it."""

from tuning.core.containers import run_seconds
from tuning.core.states import TrialState
from tuning.core.study.actions import Action, CheckTransfer, Member
from tuning.core.study.applying import apply_event
from tuning.core.study.events import Cut
from tuning.core.study.lent import take_own
from tuning.core.study.records import Chore, Trial
from tuning.core.study.state import StudyState

CONFIGURATIONS = 8  # whose ranking is compared at two widths
RANK_STEPS = 60  # training steps of each of them at each width
COORDINATE_STEPS = 30  # of one full-width model, which the coordinate check costs at the most
WIDER = 4.0  # a step at twice the width costs up to this many times as much
WORTH = 0.02  # the check may cost this share of what is still to be trained


def must_wait(state: StudyState) -> bool:
    """Return whether no trial may start before the transfer report is there."""
    return state.transfers and state.spec.transfer_check == "require" and state.transfer is None


def refuse_transfer(state: StudyState) -> None:
    """Cut a study that requires its transfer check to pass, where it did not."""
    if state.spec.transfer_check != "require" or state.cut or state.transfer is None or not state.transfers:
        return
    if state.transfer.get("verdict") != "passed":
        apply_event(Cut(f"the transfer check did not pass: {state.transfer.get('reason')}"), state)


def place_transfer_check(state: StudyState, free: list[str], now_s: float) -> list[Action]:
    """Check on a free device: at once where it was asked for or required, and where it costs next to nothing.

    A check that nobody asked for waits for the profiles, which tell what it and the search will cost.
    """
    if not state.transfers or not free or state.checks():
        return []
    if not state.transfer_wanted and (state.transfer is not None or not _is_due(state)):
        return []
    trials = _sample(state)
    if not trials:
        return []
    state.transfer_wanted = False
    run, device = state.new_run("k"), take_own(free)
    state.chores[run] = Chore(run, "check", device, now_s)
    members = tuple(Member(trial.number, trial.config, trial.seed) for trial in trials)
    return [CheckTransfer(run, device, members)]


def _is_due(state: StudyState) -> bool:
    if state.spec.transfer_check != "auto":
        return state.spec.transfer_check == "require"
    if state.profiling or not state.facts.resumable:  # a training function has no model to look at
        return False
    sample = _sample(state)
    return bool(sample) and check_seconds(state, sample) <= WORTH * _seconds_ahead(state)


def _sample(state: StudyState) -> list[Trial]:
    """Return the first trials of the shape that most of the first ones have, so that they can be fused."""
    first = state.trials[: 4 * CONFIGURATIONS]
    shapes = [trial.shape for trial in first]
    most = max(dict.fromkeys(shapes), key=shapes.count, default="")
    return [trial for trial in first if trial.shape == most][:CONFIGURATIONS]


def check_seconds(state: StudyState, trials: list[Trial]) -> float:
    """Return the predicted cost of a check, in device seconds."""
    shape = trials[0].shape
    profile = state.profile_of(shape)
    full_step_s = state.target_step_s.get(shape, 0.0)
    ranking = RANK_STEPS * profile.seconds(len(trials)) * (1 + WIDER)
    return ranking + COORDINATE_STEPS * full_step_s


def _seconds_ahead(state: StudyState) -> float:
    """Return the predicted device seconds of the trials that wait, and of the targets.

    Without ASHA's savings, which are not known yet; containers are taken to be as large as they may be.
    """
    waiting = state.in_state(TrialState.WAITING)
    total = 0.0
    for shape in dict.fromkeys(trial.shape for trial in waiting):
        count = sum(trial.shape == shape for trial in waiting)
        size = max(min(count, state.limit_of(shape)), 1)
        total += count / size * run_seconds(state.profile_of(shape), size, state.epochs)
    targets = [state.target_seconds(trial) or 0.0 for trial in waiting[: state.spec.top_k]]
    return total + sum(targets)
