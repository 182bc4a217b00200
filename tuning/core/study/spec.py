"""What a study is asked to do: the `spec` of a job file, checked field by field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuning.core.errors import Problem, SearchError, SpecError, escape
from tuning.core.search import check_grid
from tuning.core.space import Space, distribution_schemas, parse_space
from tuning.core.space.space import Parameter
from tuning.core.study.fields import ASHA_FIELDS, FIELDS, read_fields

_OTHER = ("scheduler", "fusion", "space", "parameters")
LARGEST_FUSION = 100_000


@dataclass(frozen=True)
class Scheduler:
    """Which trials go on: all of them (fifo), or the best of each rung (asha, asha-promote)."""

    name: str = "fifo"
    grace: int = 3
    reduction: int = 3

    def to_json(self) -> dict[str, Any]:
        """Return the scheduler as it stands in a job file."""
        if self.name == "fifo":
            return {"name": "fifo"}
        return {"name": self.name, "grace": self.grace, "reduction": self.reduction}


@dataclass(frozen=True)
class StudySpec:
    """A study's specification; every field but the workload has a default (see `fields.FIELDS`)."""

    workload: str
    trials: int = 20
    epochs: int | None = None
    target_epochs: int | None = None
    search: str = "random"
    duplicates: str = "avoid"
    scheduler: Scheduler = field(default_factory=Scheduler)
    scaling: int = 8
    parametrization: str = "mup"
    transfer_check: str = "auto"
    fusion: str | int = "auto"
    compile: str = "auto"
    eager: float = 0.5
    top_k: int = 3
    target_search: int = 0
    seed: int = 0
    devices: int | None = None
    bubbles: str = "allowed"
    deadline_s: float | None = None
    checkpoint_every: int = 1
    space: Space | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Any, pointer: str = "/spec") -> "StudySpec":
        """Read a specification; SpecError names every wrong field by a JSON Pointer."""
        if not isinstance(data, Mapping):
            raise SpecError([Problem(pointer, "must be an object")])
        values, problems = read_fields(data, FIELDS, pointer, _OTHER)
        values["scheduler"] = _read_scheduler(data.get("scheduler", "fifo"), f"{pointer}/scheduler", problems)
        values["fusion"] = _read_fusion(data.get("fusion", "auto"), f"{pointer}/fusion", problems)
        values["parameters"] = _read_parameters(data.get("parameters"), f"{pointer}/parameters", problems)
        values["space"] = None
        if data.get("space") is not None:
            try:
                values["space"] = parse_space(data["space"], f"{pointer}/space")
            except SpecError as error:
                problems.extend(error.problems)
        if problems:
            raise SpecError(problems)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as `from_dict` reads it."""
        document: dict[str, Any] = {name: getattr(self, name) for name in FIELDS}
        document["scheduler"] = self.scheduler.to_json()
        document["fusion"] = self.fusion
        document["space"] = self.space.to_json() if self.space else None
        document["parameters"] = dict(self.parameters)
        return document

    def checked_space(self, own: Space, pointer: str = "/spec") -> Space:
        """Return the workload's space with this study's entries in place; SpecError where it cannot work.

        `own` is the space of the workload. A study may narrow, widen or fix its parameters, but not add any.
        """
        known = ", ".join(own.names) or "none"
        problems = [
            Problem(f"{pointer}/space/{escape(name)}", f"is no parameter of {self.workload}; it has {known}")
            for name in (self.space.names if self.space else ())
            if name not in own.names
        ]
        if problems:
            raise SpecError(problems)
        space = own.replace(_inherit(self.space, own)) if self.space else own
        if not space.parameters:
            raise SpecError([Problem(f"{pointer}/space", "has no parameters, so there is nothing to search")])
        if self.search == "grid":
            try:
                check_grid(space)
            except SearchError as error:
                raise SpecError([Problem(f"{pointer}/search", f"grid is not possible: {error}")]) from error
        return space


def _inherit(space: Space, own: Space) -> Space:
    """Give replaced entries the conditions of the workload's own, unless they state theirs."""
    return Space(
        tuple(
            Parameter(p.name, p.distribution, p.conditions or own[p.name].conditions)
            for p in space.parameters
        )
    )


def _read_scheduler(value: Any, pointer: str, problems: list[Problem]) -> Scheduler:
    data = {"name": value} if isinstance(value, str) else value
    if not isinstance(data, Mapping):
        problems.append(Problem(pointer, "must be a name or an object with `name`, `grace` and `reduction`"))
        return Scheduler()
    values, found = read_fields(data, ASHA_FIELDS, pointer)
    problems.extend(found)
    return Scheduler() if found else Scheduler(**values)


def _read_fusion(value: Any, pointer: str, problems: list[Problem]) -> str | int:
    if value in ("auto", "off"):
        return str(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= LARGEST_FUSION:
        problems.append(Problem(pointer, "must be auto, off, or the number of trials to fuse, at least 1"))
        return "auto"
    return int(value)


def _read_parameters(value: Any, pointer: str, problems: list[Problem]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        problems.append(Problem(pointer, "must be an object of workload parameters"))
        return {}
    return dict(value)


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a study specification."""
    scheduler = {
        "type": "object",
        "properties": {name: field.schema() for name, field in ASHA_FIELDS.items()},
        "required": ["name"],
        "additionalProperties": False,
    }
    fusion_size = {"type": "integer", "minimum": 1, "maximum": LARGEST_FUSION}
    properties = {name: field.schema() for name, field in FIELDS.items()}
    properties["scheduler"] = {"oneOf": [ASHA_FIELDS["name"].schema(), scheduler], "default": "fifo"}
    properties["fusion"] = {
        "oneOf": [{"type": "string", "enum": ["auto", "off"]}, fusion_size],
        "default": "auto",
        "description": "How many trials share a container: measured, one, or a number.",
    }
    properties["space"] = {"type": ["object", "null"], "additionalProperties": distribution_schemas()}
    properties["parameters"] = {"type": "object", "description": "Fixed settings that the workload declares."}
    return {
        "type": "object",
        "properties": properties,
        "required": ["workload"],
        "additionalProperties": False,
    }
