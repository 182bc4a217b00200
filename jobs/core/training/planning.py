"""What to do about a slow or dead rank of a training job: plans in its own seconds and bytes.

The planner of `jobs.core.layout` decides; here its instance is made from what the job measured, and its
answer is put into what a person decides on: the pause, what moves, the memory, and why other plans lose.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.core.errors import ImpossibleSchedule, MalformedInstance, NoFeasiblePlan
from jobs.core.layout import Instance, Plan, iteration_time, make_plan
from jobs.core.layout.actions import action_of
from jobs.core.layout.documents import (
    alternative_document,
    layout_document,
    transition_document,
)
from jobs.core.layout.instance import Device, Layer, Layout
from jobs.core.layout.reading import read_layout
from jobs.core.pipeline import build_schedule
from jobs.core.training.calibration import Calibration, LayerCosts, Reference, efficiency, layer_costs
from jobs.core.training.layout import TWO_CHUNKS, legal_sizes
from jobs.core.training.model import ModelShape
from jobs.core.training.sharing import SharedCores

# A plan must bring this much, or it is not worth a person's time.
LEAST_GAIN = 0.03
TIME_LIMIT_S = 6.0
# Estimates until the job has measured a pause of its own.
REBUILD_S, TRANSFER_BYTES_PER_S, RESTORE_S = 1.0, 2e8, 2.0


@dataclass(frozen=True)
class Situation:
    """A running job as the planner sees it.

    `speeds` are factors of a healthy device by rank, 0 for dead; ranks that are not named are healthy.
    `measured` are own seconds per micro-batch by rank, `measured_iteration_s` the recent iteration time.
    `nodes` and `memory_bytes` have one entry per rank. `pause_s` is a pause measured before, if any.
    `cores` says on which core each rank works, where ranks share them, and `resting` which of the slow ones
    are held up by something else than their core. `calm` is the layout in which the job last ran with nothing
    wrong, and its iteration time there; `spread` says how recent iterations vary, see `Calibration`.
    """

    model: ModelShape
    schedule: str
    layout: Mapping[str, Any]
    nodes: tuple[str, ...]
    memory_bytes: tuple[int, ...]
    speeds: Mapping[int, float]
    measured: Mapping[str, Mapping[str, float]]
    measured_iteration_s: float | None
    steps_left: int
    steps_since_checkpoint: int = 0
    pause_s: float | None = None
    largest_group: int = 1
    cores: tuple[str, ...] = ()
    resting: frozenset[int] = frozenset()
    calm: tuple[Mapping[str, Any], float] | None = None
    spread: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Candidate:
    """One plan in the job's own units."""

    name: str
    title: str
    kind: str | None
    layout: dict[str, Any] | None
    iteration_s: float | None
    pause_s: float | None
    moved_bytes: int
    needs_checkpoint: bool
    memory: list[dict[str, Any]]
    reason: str
    interval_s: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as plain data."""
        return {
            "name": self.name,
            "title": self.title,
            "kind": self.kind,
            "plan": self.layout,
            "predicted_iteration_s": self.iteration_s,
            "predicted_interval_s": None if self.interval_s is None else list(self.interval_s),
            "predicted_pause_s": self.pause_s,
            "moved_bytes": self.moved_bytes,
            "needs_checkpoint": self.needs_checkpoint,
            "memory": self.memory,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Answer:
    """The plan to propose, or None with the reason why the job had better stay as it is."""

    chosen: Candidate | None
    reason: str
    baseline_iteration_s: float | None
    alternatives: list[Candidate] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def answer(situation: Situation, clock: Callable[[], float]) -> Answer:
    """Plan for a job with slow or dead ranks; raises NoFeasiblePlan where it cannot go on at all."""
    return _Planning(situation, clock).answer()


class _Planning:
    def __init__(self, situation: Situation, clock: Callable[[], float]) -> None:
        self.situation, self.clock = situation, clock
        self.costs = layer_costs(situation.model, situation.layout, situation.measured, situation.speeds)
        self.instance = _instance(situation, self.costs)
        self.calibration = self._calibrate()

    def _simulate(self, instance: Instance, layout: Layout) -> float:
        """Return the simulated seconds of an iteration, with cores divided where ranks share them."""
        shared = self._shared(instance)
        return iteration_time(instance, layout) if shared is None else shared.time(layout)

    def _shared(self, instance: Instance) -> SharedCores | None:
        cores = self.situation.cores
        if len(set(cores)) == len(cores):
            return None
        names = dict(zip((device.id for device in instance.devices), cores, strict=True))
        return SharedCores(instance, names, (f"r{rank}" for rank in self.situation.resting))

    def _calibrate(self) -> Calibration:
        situation, present = self.situation, None
        if situation.measured_iteration_s is not None:
            # With a dead rank: what was measured, was measured while it lived.
            instance = _instance(situation, self.costs, alive=True) if self._has_dead else self.instance
            assert instance.current is not None
            present = Reference(self._simulate(instance, instance.current), situation.measured_iteration_s)
        return Calibration(present, self._calm(), situation.spread)

    @property
    def _has_dead(self) -> bool:
        assert self.instance.current is not None
        return any(self.instance.device(name).speed == 0 for name in self.instance.current.devices())

    def _calm(self) -> Reference | None:
        if self.situation.calm is None:
            return None
        layout, measured_s = self.situation.calm
        healthy = _instance(
            replace(self.situation, layout=layout, speeds={}, resting=frozenset()), self.costs
        )
        assert healthy.current is not None
        return Reference(self._simulate(healthy, healthy.current), measured_s)

    def _plan(self) -> Plan:
        """Plan with as many replicas as the job has; with any number only where that cannot be."""
        try:
            return make_plan(self.instance, self.clock)
        except NoFeasiblePlan:
            self.instance = _replaced(self.instance, replicas=None)
            return make_plan(self.instance, self.clock)

    def answer(self) -> Answer:
        plan = self._plan()
        assert self.instance.current is not None
        stays = None if self._has_dead else self._simulate(self.instance, self.instance.current)
        baseline = None if stays is None else self.calibration.predict(stays)
        shared = self._shared(self.instance)
        best = self._of_plan(plan) if shared is None else self._of_shared(plan, shared)
        others = [self._of_alternative(plan, best, other) for other in plan.alternatives]
        ranked = [best, *sorted((o for o in others if o.iteration_s is not None), key=_seconds)]
        chosen = next((each for each in ranked if each.kind is not None and self._can_run(each)), None)
        facts = {
            "speeds": {str(rank): speed for rank, speed in sorted(self.situation.speeds.items())},
            "calibration": self.calibration.to_json(),
            "costs_measured": self.costs.measured,
            "shares_cores": shared is not None,
            "planning_s": plan.planning_s,
            "warnings": list(plan.warnings),
        }
        if shared is None:  # a proof holds for ranks that have a device each
            bound_s = self.calibration.predict(plan.lower_bound)
            facts |= {"lower_bound_s": bound_s, "gap": plan.gap, "optimal": plan.optimal}
        reason = self._not_worth(chosen, baseline)
        return Answer(None if reason else chosen, reason, baseline, others, facts)

    def _not_worth(self, chosen: Candidate | None, baseline: float | None) -> str:
        if chosen is None or chosen.iteration_s is None or chosen.pause_s is None:
            return "no other layout is faster than the present one"
        if baseline is None:
            return ""
        gain = baseline - chosen.iteration_s
        if gain < LEAST_GAIN * baseline:
            return (
                f"the best plan would take {chosen.iteration_s:.3g} s an iteration instead of "
                f"{baseline:.3g} s, which is not worth a change"
            )
        if gain * self.situation.steps_left <= chosen.pause_s:
            return (
                f"with {self.situation.steps_left} steps left, a plan that saves {gain:.3g} s each does not "
                f"make up for its pause of {chosen.pause_s:.2g} s"
            )
        return ""

    def _can_run(self, candidate: Candidate) -> bool:
        """Whether the job's own schedule runs on a layout that the planner made for 1F1B."""
        schedule = self.situation.schedule
        for replica in (candidate.layout or {"replicas": []})["replicas"]:
            if schedule in TWO_CHUNKS and min(stage["layers"] for stage in replica["stages"]) < 2:
                return False
            try:
                build_schedule(schedule, len(replica["stages"]), replica["microbatches"])
            except ImpossibleSchedule:
                return False
        return True

    def _of_plan(self, plan: Plan) -> Candidate:
        return self._candidate(
            "plan", "the joint plan", plan.action, plan.layout, plan.time, "the fastest of all"
        )

    def _of_shared(self, plan: Plan, shared: SharedCores) -> Candidate:
        """The best layout found for shared cores, from the plan, the alternatives and the present layout."""
        starts = [plan.layout, *(other.layout for other in plan.alternatives if other.layout is not None)]
        layout = shared.best(starts) or plan.layout
        return self._candidate(
            "plan", "the joint plan", action_of(self.instance, layout), layout, shared.time(layout),
            "the fastest that was found",
        )  # fmt: skip

    def _of_alternative(self, plan: Plan, best: Candidate, other: Any) -> Candidate:
        document = alternative_document(self.instance, plan, other)
        time, reason = other.time, document["reason"]
        shared = self._shared(self.instance)
        if shared is not None and time is not None:
            # What is no layout of its own keeps its proportion to the plan.
            time = shared.time(other.layout) if other.layout else shared.time(plan.layout) * time / plan.time
            reason = _comparison(self.calibration.predict(time), best.iteration_s or 0.0)
        return self._candidate(
            document["name"], document["title"], document["action"], other.layout, time, reason
        )

    def _candidate(
        self, name: str, title: str, action: Any, layout: Layout | None, time: float | None, reason: str
    ) -> Candidate:
        seconds = None if time is None else self.calibration.predict(time)
        bounds = None if time is None else self.calibration.interval(time)
        kind = None if action in (None, "keep") else str(action)
        if layout is None or time is None:
            return Candidate(name, title, kind, None, seconds, None, 0, False, [], reason, bounds)
        moved = transition_document(self._state_sized(), layout) or {"moved": 0.0, "needs_checkpoint": False}
        lost = bool(moved["needs_checkpoint"])
        pause = self._pause(int(moved["moved"]), lost) if kind else 0.0
        return Candidate(
            name, title, kind, layout_document(self.instance, layout), seconds, pause, int(moved["moved"]),
            lost, self._memory(layout), reason, bounds,
        )  # fmt: skip

    def _state_sized(self) -> Instance:
        """The instance with layers as large as what moves of them: weights and both moments."""
        model = self.situation.model
        layers = tuple(
            Layer(layer.forward, layer.backward, float(model.state_bytes(index)))
            for index, layer in enumerate(self.instance.layers)
        )
        return _replaced(self.instance, layers=layers)

    def _pause(self, moved_bytes: int, needs_checkpoint: bool) -> float:
        base = self.situation.pause_s if self.situation.pause_s is not None else REBUILD_S
        pause = base + moved_bytes / TRANSFER_BYTES_PER_S
        if needs_checkpoint:
            again = self.situation.steps_since_checkpoint * (self.situation.measured_iteration_s or 0.0)
            pause += RESTORE_S + again
        return pause

    def _memory(self, layout: Layout) -> list[dict[str, Any]]:
        """Bytes per rank before and after, and what the rank has."""
        assert self.instance.current is not None
        before, after = self._bytes(self.instance.current), self._bytes(layout)
        return [
            {
                "rank": int(device.id[1:]),
                "before_bytes": int(before.get(device.id, 0)),
                "after_bytes": int(after.get(device.id, 0)),
                "available_bytes": int(device.memory),
            }
            for device in self.instance.devices
        ]

    def _bytes(self, layout: Layout) -> dict[str, float]:
        sums, found = self.instance.memory_sums, {}
        for replica in layout.replicas:
            first = 0
            for stage in replica.stages:
                last = first + stage.layers
                for name in stage.devices:
                    found[name] = (sums[last] - sums[first]) / len(stage.devices)
                first = last
        return found


def _seconds(candidate: Candidate) -> float:
    return candidate.iteration_s or 0.0


def _comparison(seconds: float, best_s: float) -> str:
    ratio = seconds / best_s if best_s > 0 else 1.0
    return f"{ratio - 1:.0%} slower than the plan" if ratio >= 1.005 else "about as fast as the plan"


def _instance(situation: Situation, costs: LayerCosts, *, alive: bool = False) -> Instance:
    """Return the planner's instance; with `alive`, as if nobody were dead."""
    model = situation.model
    in_flight = max(len(replica["stages"]) for replica in situation.layout["replicas"])
    sizes = tuple(size for size in legal_sizes(model) if size <= max(1, situation.largest_group))
    devices = []
    for rank, (node, memory) in enumerate(zip(situation.nodes, situation.memory_bytes, strict=True)):
        speed = situation.speeds.get(rank, 1.0)
        devices.append(Device(f"r{rank}", node, speed if speed > 0 or not alive else 1.0, float(memory)))
    instance = Instance(
        devices=tuple(devices),
        layers=tuple(
            Layer(costs.forward_s[layer], costs.backward_s[layer], float(model.layer_bytes(layer, in_flight)))
            for layer in range(model.layers)
        ),
        heads=model.heads,
        sizes=sizes,
        efficiency={size: efficiency(size) for size in sizes},
        replicas=len(situation.layout["replicas"]),
        microbatches=sum(replica["microbatches"] for replica in situation.layout["replicas"]),
        time_limit_s=TIME_LIMIT_S,
    )
    try:
        return _replaced(instance, current=read_layout(situation.layout, instance, "layout"))
    except MalformedInstance as error:  # the job could not be running in it
        raise AssertionError(str(error)) from error


def _replaced(instance: Instance, **changes: Any) -> Instance:
    names = (
        "devices", "layers", "heads", "sizes", "efficiency", "replicas", "microbatches", "transfer_s",
        "current", "time_limit_s",
    )  # fmt: skip
    return Instance(**{**{name: getattr(instance, name) for name in names}, **changes})
