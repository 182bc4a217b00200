"""What Hydro's Coordinator decides on a study's devices, for its driver to carry out and for people to read.

The rules are those of `cluster.core.coordinator`; here is what they are told of a study, and what is told of
them: every decision that is carried out becomes an event with its reason.
"""

from collections.abc import Mapping

from cluster.core.coordinator import BundleDecision, StudyState, decide_bundles
from cluster.core.coordinator.bundles import spread
from cluster.models import Device
from jobs.models import Job
from tuning.core.states import TRIAL_ENDED, TrialState
from tuning.core.study import StartTarget
from tuning.core.study import Study as Brain
from tuning.services.decisions import tell_decisions

EVERYTHING = 4096


class Bundles:
    """The decisions on one study's devices; times are monotonic seconds."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._asked = ""

    def releases(
        self, brain: Brain, devices: Mapping[str, Device], idle_since_s: Mapping[str, float], now_s: float
    ) -> list[str]:
        """Return the devices that go back now, and tell why; what is asked for is told where it is news."""
        decisions = decide_bundles(state_of(brain, devices, idle_since_s), now_s)
        released = [decision for decision in decisions if decision.kind == "release"][: len(devices) - 1]
        asked = [d for d in decisions if d.kind == "ask" and d.subject != self._asked]
        self._asked = next((decision.subject for decision in asked), self._asked)
        tell_decisions(self.job, [*asked, *released])
        return [decision.subject for decision in released]

    def split(self, brain: Brain, run: str, devices: int) -> None:
        """Tell that a container is cut over so many devices."""
        sizes = spread({run: len(brain.state.members(brain.state.containers[run]))}, devices - 1)[run]
        reason = f"{sum(sizes)} fused trials over {len(sizes)} devices need no communication"
        tell_decisions(self.job, [BundleDecision("split", run, reason, tuple(sizes))])

    def widened(self, brain: Brain, start: StartTarget) -> None:
        """Tell on how many devices a target trains and why, where there was a choice."""
        target = next((one for one in brain.state.running_targets() if one.run == start.run), None)
        if target is None or not target.note:
            return
        kind, size = ("widen" if start.beside else "keep"), len(start.devices)
        tell_decisions(
            self.job, [BundleDecision(kind, f"target of trial #{start.trial}", target.note, (size,))]
        )

    def fitted(self, brain: Brain, run: str, device: str, size: int) -> None:
        """Tell how many trials share a container in the bubbles of a device, and why so many."""
        room_s = brain.state.room_s.get(device)
        if room_s is None:
            return
        step_s = brain.state.profile_of(brain.state.containers[run].shape).seconds(size)
        words = (
            f"a step of {size} takes {1e3 * step_s:.3g} ms, its longest bubble holds {1e3 * room_s:.3g} ms"
        )
        if step_s > room_s:
            words += ": no number of trials fits, so steps go on over several bubbles"
        tell_decisions(self.job, [BundleDecision("fuse", run, words, (size,))])


def state_of(brain: Brain, devices: Mapping[str, Device], idle_since_s: Mapping[str, float]) -> StudyState:
    """Return what the rules know of a study; `devices` are its own, nothing lent among them."""
    state = brain.state
    alive = state.in_state(TrialState.WAITING, TrialState.RUNNING)
    total = len(state.trials) if state.exhausted else max(state.spec.trials, len(state.trials))
    containers = {run.id: len(state.members(run)) for run in state.active_containers()}
    shapes = {trial.shape for trial in alive}
    targets = [target for target in state.all_targets() if target.state in ("waiting", "running")]
    return StudyState(
        trials_alive=total - state.count(*TRIAL_ENDED),
        largest_fusion=max([1, *(state.limit_of(shape) for shape in shapes), *containers.values()]),
        cap=state.spec.devices or EVERYTHING,
        containers=containers,
        nodes={label: device.node.name for label, device in devices.items()},
        idle_since_s=idle_since_s,
        new_bundles=len(idle_since_s),
        target=bool(targets),
        rung=min((len(trial.passed) for trial in alive), default=0),
    )
