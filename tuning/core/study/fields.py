"""The fields of a study specification as one table: type, range, default, meaning.

The reader, the JSON Schema of the API and the web form are made from it, so they cannot disagree.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuning.core.errors import Problem, escape
from tuning.core.search import SEARCHES

SCHEDULERS = ("fifo", "asha", "asha-promote")


@dataclass(frozen=True)
class Field:
    """One field: its kind, its range or choices, its default and one line of help."""

    kind: str  # "text", "whole", "number", "choice"
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    above: bool = False  # `low` itself is excluded
    help: str = ""

    def problem(self, value: Any) -> str | None:
        """Return the rule that a value breaks, or None."""
        if value is None:
            return None if self.optional else f"must be {self._expected()}"
        if self.kind == "text":
            ok = isinstance(value, str) and len(value.strip()) > 0 and len(value) <= 255
            return None if ok else f"must be {self._expected()}"
        if self.kind == "choice":
            return None if isinstance(value, str) and value in self.choices else f"must be {self._expected()}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"must be {self._expected()}"
        if not math.isfinite(value) or (self.kind == "whole" and value != int(value)):
            return f"must be {self._expected()}"
        return None if self._in_range(value) else f"must be {self._expected()}"

    def _in_range(self, value: float) -> bool:
        over = self.low is None or (value > self.low if self.above else value >= self.low)
        return over and (self.high is None or value <= self.high)

    def _expected(self) -> str:
        if self.kind == "text":
            return "a text of 1 to 255 characters"
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        kind = "a whole number" if self.kind == "whole" else "a number"
        start = f" above {self.low:g}" if self.above else f" from {self.low:g}"
        ending = f" to {self.high:,.0f}".replace(",", " ") if self.high is not None else ""
        if self.above and ending:
            ending = f" and at most {self.high:g}"
        return kind + start + ending + (", or null" if self.optional else "")

    def schema(self) -> dict[str, Any]:
        """Return the field as JSON Schema."""
        kinds = {"text": "string", "choice": "string", "whole": "integer", "number": "number"}
        kind: Any = kinds[self.kind]
        schema: dict[str, Any] = {"type": [kind, "null"] if self.optional else kind, "description": self.help}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.kind == "text":
            schema |= {"minLength": 1, "maxLength": 255}
        if self.low is not None:
            schema["exclusiveMinimum" if self.above else "minimum"] = self.low
        if self.high is not None:
            schema["maximum"] = self.high
        if self.default is not None or self.optional:
            schema["default"] = self.default
        return schema


MOST_TRIALS = 100_000
MOST_EPOCHS = 1_000_000

FIELDS: dict[str, Field] = {
    "workload": Field("text", help="A registered workload (`forebay tune --list`) or `package.module:Name`."),
    "trials": Field("whole", 20, 1, MOST_TRIALS, help="How many configurations are tried in all."),
    "epochs": Field("whole", None, 1, MOST_EPOCHS, optional=True, help="The budget of one trial."),
    "target_epochs": Field(
        "whole", None, 1, MOST_EPOCHS, optional=True, help="Epochs of a target model, if not `epochs`."
    ),
    "search": Field("choice", "random", choices=SEARCHES, help="How configurations are chosen."),
    "duplicates": Field(
        "choice", "avoid", choices=("avoid", "keep"), help="Whether random search may repeat itself."
    ),
    "scaling": Field("whole", 8, 1, 4096, help="Width of the target over width of a surrogate; 1 is off."),
    "parametrization": Field(
        "choice", "mup", choices=("mup", "standard", "hydro"), help="How hyperparameters follow the width."
    ),
    "transfer_check": Field(
        "choice",
        "auto",
        choices=("auto", "off", "require"),
        help="A look at two widths before an expensive search; with require it must pass.",
    ),
    "compile": Field(
        "choice",
        "auto",
        choices=("auto", "off"),
        help="Compile targets and whole containers where measuring says that it pays.",
    ),
    "eager": Field(
        "number", 0.5, 0, 1, above=True, help="Share of finished trials before a first target; 1 is off."
    ),
    "top_k": Field("whole", 3, 1, 1000, help="How many of the best configurations become target models."),
    "target_search": Field(
        "whole", 0, 0, 1000, help="Targets that try values of what does not transfer (dropout); 0 refuses it."
    ),
    "seed": Field("whole", 0, 0, 2**53, help="Everything random in the study follows from it."),
    "devices": Field("whole", None, 1, 4096, optional=True, help="Devices to use; null is all there are."),
    "bubbles": Field(
        "choice", "allowed", choices=("allowed", "only", "no"), help="Use of idle gaps in training jobs."
    ),
    "deadline_s": Field(
        "number", None, 0, 10**9, optional=True, above=True, help="Seconds after which the best counts."
    ),
    "checkpoint_every": Field("whole", 1, 1, MOST_EPOCHS, help="Epochs between two checkpoints."),
}

ASHA_FIELDS: dict[str, Field] = {
    "name": Field("choice", choices=SCHEDULERS, help="fifo trains all trials to the end."),
    "grace": Field("whole", 3, 1, MOST_EPOCHS, help="Epochs before the first comparison."),
    "reduction": Field("whole", 3, 2, 1000, help="One in this many goes on at each comparison."),
}


def read_fields(
    data: Mapping[str, Any], fields: Mapping[str, Field], pointer: str, extra: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of known fields (defaults filled in) and every broken rule."""
    known = ", ".join(sorted((*fields, *extra)))
    problems = [
        Problem(f"{pointer}/{escape(str(name))}", f"is no known field; known are {known}")
        for name in data
        if name not in fields and name not in extra
    ]
    values: dict[str, Any] = {}
    for name, field in fields.items():
        value = data.get(name, field.default)
        required = field.default is None and not field.optional
        if name not in data and required:
            problems.append(Problem(f"{pointer}/{name}", "is required"))
            continue
        problem = field.problem(value) if name in data else None
        if problem:
            problems.append(Problem(f"{pointer}/{name}", problem))
        values[name] = int(value) if field.kind == "whole" and value is not None and not problem else value
    return values, problems
