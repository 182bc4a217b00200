"""The plain fields of a training job's spec, each with its range and its default; one table."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.core.body import Faults, escape


@dataclass(frozen=True)
class Field:
    """A number, a choice, or yes and no; `default` None means that it is worked out."""

    kind: str  # whole | number | choice | flag
    default: Any
    help: str
    low: float = 0.0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    exclusive: bool = False  # low itself is not allowed
    optional: bool = False  # null is allowed

    def fault(self, value: Any) -> str | None:
        """Return the rule that a value breaks, or None."""
        if value is None and self.optional:
            return None
        if self.kind == "choice":
            return None if value in self.choices else f"must be one of {', '.join(self.choices)}"
        if self.kind == "flag":
            return None if isinstance(value, bool) else "must be true or false"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or (self.kind == "whole" and (not math.isfinite(value) or value != int(value))):
            return f"must be a {'whole ' if self.kind == 'whole' else ''}number {self._range()}"
        if not math.isfinite(value) or not (self.low < value if self.exclusive else self.low <= value):
            return f"must be a {'whole ' if self.kind == 'whole' else ''}number {self._range()}"
        return None if value <= self.high else f"must be {self._range()}, not {value:g}"

    def _range(self) -> str:
        least = f"above {self.low:g}" if self.exclusive else f"of at least {self.low:g}"
        return least if self.high == math.inf else f"{least} and at most {self.high:g}"

    def clean(self, value: Any) -> Any:
        """Return a faultless value in its own type."""
        return int(value) if self.kind == "whole" and value is not None else value

    def schema(self) -> dict[str, Any]:
        """Return the field as JSON Schema."""
        if self.kind == "choice":
            found: dict[str, Any] = {"enum": [*self.choices, None] if self.optional else list(self.choices)}
        elif self.kind == "flag":
            found = {"type": "boolean"}
        else:
            name = "integer" if self.kind == "whole" else "number"
            found = {"type": [name, "null"] if self.optional else name}
            found["exclusiveMinimum" if self.exclusive else "minimum"] = self.low
            if self.high != math.inf:
                found["maximum"] = self.high
        found["description"] = self.help
        return found if self.default is None else {**found, "default": self.default}


SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v")
MOST_RANKS = 10_240

FIELDS: dict[str, Field] = {
    "schedule": Field("choice", "1f1b", "Pipeline schedule.", choices=SCHEDULES),
    "microbatches": Field("whole", None, "Micro-batches of an iteration, over all replicas; default: twice "
                          "the stages for each replica.", 1, 1_000_000, optional=True),
    "steps": Field("whole", 200, "Optimizer steps to train.", 1, 100_000_000),
    "checkpoint_every": Field("whole", 100, "Steps between two checkpoints.", 1, 100_000_000),
    "devices": Field("whole", None, "How many devices a default layout is made for; default: all there are.",
                     1, MOST_RANKS, optional=True),
    "seed": Field("whole", 0, "Seed of weights and data order.", 0, 2**63 - 1),
    "lr": Field("number", 0.003, "Learning rate of AdamW.", 0, 10, exclusive=True),
    "lend_bubbles": Field("flag", True, "Whether trials may run in this job's pipeline bubbles."),
    "lend_limit": Field("number", 0.02, "Slowdown by trials, as measured, at which lending rests.",
                        0, 10, exclusive=True),
}  # fmt: skip

MODEL_FIELDS: dict[str, Field] = {
    "layers": Field("whole", None, "Transformer blocks; default: as many as the layout has, or 4.", 1, 1000,
                    optional=True),
    "width": Field("whole", 64, "Width of the residual stream.", 8, 65_536),
    "heads": Field("whole", 4, "Attention heads; they divide the width.", 1, 1024),
    "context": Field("whole", 64, "Tokens of a sequence at most.", 8, 32_768),
    "microbatch_tokens": Field("whole", 256, "Tokens up to which sequences are packed into a micro-batch; at "
                               "least the context.", 8, 1_048_576),
}  # fmt: skip

RECOVERY_FIELDS: dict[str, Field] = {
    "fail_stop": Field("choice", "proceed", "Whether a job whose device died proceeds at once, or waits.",
                       choices=("proceed", "approve")),
    "expire_s": Field("number", 3600, "Seconds after which a proposed plan expires.", 1, 604_800),
}  # fmt: skip


def read_fields(
    data: Any, fields: Mapping[str, Field], pointer: str, faults: Faults, others: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return every field's value or default; faults are added to the list, unknown names among them."""
    values = {name: field.default for name, field in fields.items()}
    if not isinstance(data, Mapping):
        faults.append((pointer, "must be an object"))
        return values
    for key, value in data.items():
        if key in others:
            continue
        field = fields.get(key) if isinstance(key, str) else None
        if field is None:
            known = ", ".join((*others, *fields))
            faults.append((f"{pointer}/{escape(str(key))}", f"unknown field; known are {known}"))
        elif rule := field.fault(value):
            faults.append((f"{pointer}/{key}", rule))
        else:
            values[key] = field.clean(value)
    return values
