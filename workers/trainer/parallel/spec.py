"""What a run of parallel training is told: the model, the data, the layout, the schedule, the optimizer."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from jobs.core.errors import MalformedInstance
from jobs.core.layout.instance import Device, Instance, Layer, Layout
from jobs.core.layout.reading import check_layout, read_layout
from jobs.core.pipeline import SCHEDULES, Schedule, build_schedule
from workers.trainer.parallel.errors import ImpossibleRun

SHORTEST = 8  # characters a sample predicts at least
TWO_CHUNKS = ("interleaved", "zb-v")  # schedules in which a rank holds two model chunks


@dataclass(frozen=True)
class RunSpec:
    """One run. Plan rank i, the fixed identity of a process, is device `devices[i]`.

    `layout` is a layout document as `forebay plan` prints it. `microbatches` counts all replicas of one
    iteration; a micro-batch packs whole sequences of at most `context` characters up to
    `microbatch_tokens`. `checkpoint_every` of 0 writes none but the last. `resume` continues from the last
    complete checkpoint in `folder`, if there is one, but from none beyond `known_step`, the last step that is
    written down. `nodes` says on which node a device is: state comes from
    the same node where it can.
    """

    devices: tuple[str, ...]
    layout: dict[str, Any]
    folder: str
    workload: str = "pydoc-gpt"
    schedule: str = "1f1b"
    layers: int = 4
    width: int = 64
    heads: int = 4
    context: int = 64
    microbatches: int = 8
    microbatch_tokens: int = 256
    steps: int = 100
    checkpoint_every: int = 0
    checkpoints_kept: int = 2
    seed: int = 0
    lr: float = 3e-3
    warmup_steps: int = 10
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    dropout: float = 0.0
    timeout_s: float = 600.0
    threads: int = 1
    resume: bool = True
    known_step: int | None = None
    nodes: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `from_json` reads."""
        return {**asdict(self), "devices": list(self.devices), "betas": list(self.betas)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RunSpec":
        """Return the run that plain data describes; ImpossibleRun names an unknown or missing field."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(data) - known)
        missing = sorted({"devices", "layout", "folder"} - set(data))
        if unknown or missing:
            name = (unknown or missing)[0]
            raise ImpossibleRun(f"{name}: is {'not a field of a run' if unknown else 'missing'}")
        values = {**data, "devices": tuple(data["devices"])}
        if "betas" in data:
            first, second = data["betas"]
            values["betas"] = (float(first), float(second))
        return cls(**values)

    def check(self) -> None:
        """Refuse a run that cannot start, before any process does; ImpossibleRun says why."""
        if self.workload != "pydoc-gpt":
            raise ImpossibleRun(f"workload is {self.workload!r}: parallel training knows pydoc-gpt")
        if self.schedule not in SCHEDULES:
            raise ImpossibleRun(f"schedule {self.schedule!r} is none of {', '.join(SCHEDULES)}")
        for name in ("layers", "width", "heads", "context", "microbatches", "microbatch_tokens", "steps"):
            if getattr(self, name) < 1:
                raise ImpossibleRun(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.width % self.heads:
            raise ImpossibleRun(f"width is {self.width}: it must be a multiple of the {self.heads} heads")
        if self.context < SHORTEST:
            raise ImpossibleRun(f"context is {self.context}: it must be at least {SHORTEST}")
        if len(set(self.devices)) != len(self.devices):
            raise ImpossibleRun("devices: each may be named once")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ImpossibleRun(f"lr is {self.lr}: it must be a finite number above 0")
        if not 0 <= self.dropout < 1:
            raise ImpossibleRun(f"dropout is {self.dropout}: it must lie in 0 to 1, 1 excluded")
        self.read(self.layout)

    def read(self, document: Mapping[str, Any]) -> Layout:
        """Return the layout of a document, fit for this run; ImpossibleRun names what is not."""
        # a group of any size that divides the heads may run; the planner's own rules are stricter
        sizes = tuple(k for k in range(1, self.heads + 1) if self.heads % k == 0)
        instance = Instance(
            devices=tuple(Device(name, "any", 1.0, 1.0) for name in self.devices),
            layers=(Layer(1.0, 2.0, 1.0),) * self.layers,
            heads=self.heads,
            sizes=sizes,
            efficiency=dict.fromkeys(sizes, 1.0),
            replicas=None,
            microbatches=self.microbatches,
        )
        try:
            layout = read_layout(document, instance, "layout")
            self._check_groups(layout, sizes)
            check_layout(instance, layout, "layout")
        except MalformedInstance as error:
            raise ImpossibleRun(str(error)) from error
        return layout

    def schedule_of(self, stages: int, microbatches: int) -> Schedule:
        """The instruction lists of a replica."""
        return build_schedule(self.schedule, stages, microbatches)

    def _check_groups(self, layout: Layout, sizes: tuple[int, ...]) -> None:
        for i, replica in enumerate(layout.replicas):
            if self.schedule == "interleaved" and replica.microbatches % len(replica.stages):
                raise ImpossibleRun(
                    f"layout.replicas[{i}].microbatches is {replica.microbatches}: interleaving needs a "
                    f"multiple of the {len(replica.stages)} stages"
                )
            for j, stage in enumerate(replica.stages):
                where = f"layout.replicas[{i}].stages[{j}]"
                if len(stage.devices) not in sizes:
                    legal = ", ".join(map(str, sizes))
                    raise ImpossibleRun(
                        f"{where}.devices: a group of {len(stage.devices)} does not divide the "
                        f"{self.heads} heads; groups that do: {legal}"
                    )
                if self.schedule in TWO_CHUNKS and stage.layers < 2:
                    raise ImpossibleRun(
                        f"{where}.layers is {stage.layers}: {self.schedule} needs at least two per stage"
                    )


def plan_digest(document: Mapping[str, Any]) -> str:
    """The identity of a layout: 64 hexadecimal digits over its replicas alone, in canonical JSON."""
    text = json.dumps(document["replicas"], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
