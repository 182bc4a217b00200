"""Target models: which configurations get one, when, and which are given up."""

from tuning.core.states import TRIAL_ENDED, TrialState
from tuning.core.study.actions import Action, StartTarget, StopRun
from tuning.core.study.lent import take_own
from tuning.core.study.placing import waiting_packs
from tuning.core.study.records import Target
from tuning.core.study.second_search import want_variants
from tuning.core.study.state import StudyState
from tuning.core.study.widening import take_beside
from tuning.core.transfer import eager_target, superseded

SAFETY = 1.25  # predicted seconds of a target are stretched by this before a deadline
SLACK_S = 0.3
SEARCH_SHARE = 0.4  # of a deadline that belongs to the search, whatever a target needs
GUESSED_TARGET_SHARE = 0.35
MOST_FAILURES = 3
HIDDEN = 0.97  # an early target must bring the predicted end of the study below this share


def wanted_targets(state: StudyState) -> list[int]:
    """Return the trials that should have a target once the search is over, best first.

    A configuration whose target failed makes room for the next one, `MOST_FAILURES` times.
    """
    count = min(state.spec.top_k, max(len(state.devices), 1)) if state.closing else state.spec.top_k
    failed = [trial for trial, target in state.targets.items() if target.state == "failed"]
    usable = [trial for trial in state.best_order() if trial not in failed]
    return usable[:count] if len(failed) <= MOST_FAILURES else []


def place_targets(state: StudyState, free: list[str], now_s: float) -> list[Action]:
    """Start targets on the devices that are left."""
    if not state.transfers or state.profiling:
        return []
    if state.closing or state.search_over():
        for trial in wanted_targets(state):
            _want(state, trial)
        if not state.closing:
            want_variants(state)
    elif free:
        _eager(state)
    return _start_waiting(state, free, now_s)


def place_early_target(state: StudyState, free: list[str], now_s: float) -> list[Action]:
    """Start a target although trials are waiting, where that lets all devices finish together.

    The last targets of a study rarely fill all devices. A target that starts while others still search hides
    in their time; the price is that the leader may yet be beaten, so the eager share must have ended, no
    batch size may be untried, and the whole study must be predicted to end earlier.
    """
    if not state.transfers or not free or state.profiling or state.running_targets():
        return []
    if state.spec.eager >= 1 or state.finished_fraction() < state.spec.eager:
        return []
    if not state.target_step_s or not state.count(TrialState.WAITING):
        return []
    if any(target.state != "stopped" for target in state.targets.values()) or _unexplored(state):
        return []
    order = state.best_order()
    if not order:
        return []
    target_s = state.target_seconds(state.trials[order[0]])
    if target_s is None or not _ends_earlier(state, free, target_s):
        return []
    _eager(state)
    return _start_waiting(state, free, now_s)


def _unexplored(state: StudyState) -> bool:
    """Whether trials of a shape are waiting of which none has been trained to the end."""
    known = {trial.shape for trial in state.in_state(TrialState.COMPLETED)}
    return any(trial.shape not in known for trial in state.in_state(TrialState.WAITING))


def _ends_earlier(state: StudyState, free: list[str], target_s: float) -> bool:
    packs = [pack.seconds for pack in waiting_packs(state, free)]
    busy = [state.remaining_s(container) for container in state.active_containers()]
    devices = [0.0] * len(free) + busy
    targets = [target_s] * state.spec.top_k
    after = _end_of(_end_of(devices, packs), targets)
    early = _end_of(_end_of([target_s, *devices[1:]], packs), targets[1:])
    return max(early) < HIDDEN * max(after)


def _end_of(loads: list[float], jobs: list[float]) -> list[float]:
    """Return the devices' loads after placing jobs, longest first, each on the least loaded device."""
    loads = list(loads)
    for seconds in sorted(jobs, reverse=True):
        loads[loads.index(min(loads))] += seconds
    return loads


def _start_waiting(state: StudyState, free: list[str], now_s: float) -> list[Action]:
    waiting = [target for target in state.all_targets() if target.state == "waiting"]
    if not waiting or not free:
        return []
    order = {trial: index for index, trial in enumerate(state.best_order())}
    waiting.sort(key=lambda target: order.get(target.trial, len(order)))
    return _start_each(state, waiting[: len(free)], free, 0, now_s)


def resume_targets(state: StudyState, free: list[str], now_s: float) -> list[Action]:
    """Let targets that have paused go on, before what they made room for takes all devices."""
    waiting = [target for target in state.all_targets() if target.state == "waiting"]
    paused = [target for target in waiting if target.paused]
    return _start_each(state, paused[: len(free)], free, len(waiting) - len(paused), now_s)


def _start_each(
    state: StudyState, targets: list[Target], free: list[str], others: int, now_s: float
) -> list[Action]:
    """Start every one of these targets; `others` wait for a device, too."""
    after = range(len(targets) + others - 1, others - 1, -1)
    return [_start(state, target, free, left, now_s) for target, left in zip(targets, after, strict=True)]


def _eager(state: StudyState) -> None:
    """Want a target for the leader, once enough trials have ended."""
    if state.spec.eager >= 1 or state.finished_fraction() < state.spec.eager:
        return
    started = [trial for trial, target in state.targets.items() if target.state != "stopped"]
    ended = state.count(*TRIAL_ENDED)
    total = len(state.trials) if state.exhausted else state.spec.trials
    leader = eager_target(state.best_order(), ended, total, state.spec.eager, started)
    if leader is not None:
        _want(state, leader)


def _want(state: StudyState, trial: int) -> None:
    """Ask for a target; one that was given up goes on from its checkpoint."""
    target = state.targets.setdefault(trial, Target(trial))
    if target.state == "stopped":
        target.state, target.reason, target.end_s = "waiting", None, None


def _start(state: StudyState, target: Target, free: list[str], needed: int, now_s: float) -> StartTarget:
    """Start a target on a device of `free`, of which `needed` more are for others."""
    trial = state.trials[target.trial]
    device = take_own(free)
    target.beside = take_beside(state, target, device, free, needed)
    target.run, target.device, target.state = state.new_run("t"), device, "running"
    target.attempts += 1
    target.paused, target.end_s = False, None
    if target.started_fraction is None:
        target.started_fraction = state.finished_fraction()
        target.start_s = now_s
    return StartTarget(
        target.run,
        device,
        trial.number,
        {**trial.config, **target.values},
        trial.seed,
        state.target_epochs,
        target.checkpoint,
        target.variant,
        tuple(target.beside),
    )


def stop_superseded(state: StudyState, free: list[str]) -> list[Action]:
    """Give up targets that fell out of the best `top_k`, where somebody needs their device."""
    if not state.transfers or free:
        return []
    running = [t for t in state.running_targets() if t.run not in state.stopping and not t.variant]
    if not running:
        return []
    needed = any(target.state == "waiting" for target in state.targets.values()) or bool(
        [t for t in state.in_state(TrialState.WAITING) if t.held_at is None]
    )
    losers = superseded(state.best_order(), [t.trial for t in running], state.spec.top_k)
    if not needed or not losers:
        return []
    run = str(state.targets[losers[0]].run)
    state.stopping.add(run)
    return [StopRun(run, pause=False)]


def should_close(state: StudyState, now_s: float, deadline_s: float) -> bool:
    """Return whether the search must end now for a target model to be ready by the deadline."""
    order = state.best_order()
    if not state.transfers or not order:
        return False
    leader = state.targets.get(order[0])
    if leader is not None and leader.state in ("running", "completed"):
        return False
    seconds = state.target_seconds(state.trials[order[0]])
    needed = seconds * SAFETY if seconds is not None else GUESSED_TARGET_SHARE * deadline_s
    return now_s >= max(deadline_s - needed - SLACK_S, SEARCH_SHARE * deadline_s)
