"""Where work goes: profiles first, then containers, then pieces of containers on devices that are idle."""

from dataclasses import replace

from tuning.core.containers import Candidate, Pack, plan_packs, should_split
from tuning.core.states import TrialState
from tuning.core.study.actions import Action, Member, Profile, StartContainer, StopRun
from tuning.core.study.applying import ALONE_AFTER_LOSSES
from tuning.core.study.lent import take_for, take_own
from tuning.core.study.records import Chore, Container
from tuning.core.study.state import StudyState
from tuning.core.study.transferring import must_wait
from tuning.core.study.verdicts import repack_seconds


def place_profiles(state: StudyState, free: list[str], now_s: float) -> list[Action]:
    """Spread the shapes that nobody has measured over the free devices."""
    if state.spec.fusion == "off" and state.spec.deadline_s is None:
        return []
    if not state.facts.fusable:
        return []
    pending = {shape for _, shapes in state.profiling.values() for shape in shapes}
    counts: dict[str, int] = {}
    examples: dict[str, dict[str, object]] = {}
    for trial in state.in_state(TrialState.WAITING):
        shape = trial.shape
        if shape not in state.profiles and shape not in pending:
            counts[shape] = counts.get(shape, 0) + 1
            examples.setdefault(shape, trial.config)
    wanted = [shape for shape in counts if counts[shape] > 1 or state.spec.deadline_s is not None]
    actions: list[Action] = []
    lanes = min(len(free), len(wanted))
    for lane in range(lanes):
        shapes = tuple(wanted[lane::lanes])
        run, device = state.new_run("p"), take_own(free)
        state.profiling[run] = (device, shapes)
        state.chores[run] = Chore(run, "profile", device, now_s)
        actions.append(
            Profile(
                run,
                device,
                {shape: examples[shape] for shape in shapes},
                {shape: counts[shape] for shape in shapes},
                epochs=expected_epochs(state, 0),
                full_width=state.transfers,
            )
        )
    return actions


def place_containers(state: StudyState, free: list[str], now_s: float) -> list[Action]:
    """Pack the waiting trials and start as many containers as there are free devices."""
    if not free or state.profiling or must_wait(state):
        return []
    packs = waiting_packs(state, free)
    devices = take_for(free, len(packs))
    return [
        _start(state, _fitted(state, pack, device), device, now_s)
        for pack, device in zip(packs, devices, strict=False)
    ]


def _fitted(state: StudyState, pack: Pack, device: str) -> Pack:
    """Return the part of a pack that a device takes; the other trials wait for the next one."""
    return replace(pack, trials=pack.trials[: state.fitting(pack.shape, len(pack.trials), device)])


def waiting_packs(state: StudyState, free: list[str]) -> list[Pack]:
    """Return how the waiting trials would be packed, in the order in which devices should take them."""
    waiting = [trial for trial in state.in_state(TrialState.WAITING) if trial.held_at is None]
    if not waiting:
        return []
    left = {epoch: expected_epochs(state, epoch) for epoch in {trial.checkpoint_epoch for trial in waiting}}
    candidates = [
        Candidate(
            trial.number,
            trial.shape,
            trial.checkpoint_epoch,
            left[trial.checkpoint_epoch],
            alone=trial.losses >= ALONE_AFTER_LOSSES,
        )
        for trial in waiting
    ]
    busy = [state.remaining_s(container) for container in state.active_containers()]
    busy_s = [0.0] * len(free) + busy
    return plan_packs(candidates, state.profile_of, state.limit_of, busy_s, repack_seconds(state))


def expected_epochs(state: StudyState, epoch: int) -> float:
    """Return the epochs a trial will still run on average, given that most leave at rungs."""
    share, at, total = 1.0, epoch, 0.0
    for rung in (*(r for r in state.rungs if r > epoch), state.epochs):
        total += share * (rung - at)
        at = rung
        share /= state.spec.scheduler.reduction
    return total


def _start(state: StudyState, pack: Pack, device: str, now_s: float) -> StartContainer:
    run = state.new_run("c")
    members = []
    for number in pack.trials:
        trial = state.trials[number]
        state.move(trial, TrialState.RUNNING)
        trial.run = run
        members.append(Member(number, trial.config, trial.seed, trial.checkpoint if pack.epoch else None))
    state.containers[run] = Container(
        run, pack.shape, list(pack.trials), device, pack.epoch, state.epochs, now_s, epoch=pack.epoch
    )
    rungs = tuple(rung for rung in state.rungs if pack.epoch < rung < state.epochs)
    return StartContainer(
        run, device, pack.shape, tuple(members), pack.epoch, state.epochs, rungs, len(members) > 1
    )


def split_containers(state: StudyState, free: list[str]) -> list[Action]:
    """Pause the longest container so that it goes on in pieces, where devices are idle and it pays."""
    idle = [device for device in free if device in state.devices] if state.devices else free
    longest = container_to_split(state, idle)
    if longest is None:
        return []
    longest.pausing = True
    return [StopRun(longest.id, pause=True)]


def container_to_split(state: StudyState, idle: list[str]) -> Container | None:
    """Return the container that should go on in pieces on idle devices, if there is one."""
    if not idle or state.cut or state.closing or not state.facts.resumable or state.profiling:
        return None
    if any(container.pausing for container in state.active_containers()):
        return None
    if any(trial.held_at is None for trial in state.in_state(TrialState.WAITING)):
        return None
    able = [c for c in state.active_containers() if c.awaiting is None and c.id not in state.stopping]
    longest = max(able, key=lambda c: (state.remaining_s(c), c.id), default=None)
    return longest if longest is not None and _pays(state, longest, 1 + len(idle)) else None


def _pays(state: StudyState, container: Container, devices: int) -> bool:
    # one epoch passes before the container pauses
    left = state.epochs - container.epoch - 1
    size = len(state.members(container))
    expected = min(left, expected_epochs(state, container.epoch))
    return left > 0 and should_split(
        state.profile_of(container.shape), size, devices, expected, repack_seconds(state)
    )
