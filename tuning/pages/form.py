"""The submit form as data: what stands in its fields, the job body they mean, where faults belong."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.models import Job
from tuning.core.space.parse import KINDS
from tuning.core.study.fields import ASHA_FIELDS, FIELDS, Field
from tuning.models import Workload
from tuning.queries.spaces import declared_space_of

Values = dict[str, str]
Faults = list[tuple[str, str]]

LABELS = {
    "trials": "Trials",
    "epochs": "Epochs of a trial",
    "target_epochs": "Epochs of a target",
    "search": "Search",
    "duplicates": "Repeated configurations",
    "scaling": "Scaling",
    "parametrization": "Parametrization",
    "eager": "Eager transfer",
    "transfer_check": "Transfer check",
    "compile": "Compiling",
    "top_k": "Target models",
    "target_search": "Second search on the target",
    "seed": "Seed",
    "devices": "Devices",
    "bubbles": "Bubbles",
    "deadline_s": "Deadline in seconds",
    "checkpoint_every": "Epochs per checkpoint",
    "scheduler.name": "Scheduler",
    "scheduler.grace": "Grace",
    "scheduler.reduction": "Reduction",
    "fusion": "Fusion",
}
GROUPS = {
    "budget": ("trials", "epochs", "devices", "deadline_s"),
    "search": ("search", "scheduler.name", "scheduler.grace", "scheduler.reduction", "seed"),
    "surrogates": ("scaling", "fusion", "eager", "top_k"),
    "more": (
        "transfer_check",
        "compile",
        "target_search",
        "target_epochs",
        "parametrization",
        "duplicates",
        "bubbles",
        "checkpoint_every",
    ),
}
FUSION = Field("text", "auto", help="auto measures how many trials share a device; off, or a number.")
TABLE: dict[str, Field] = {
    **{name: entry for name, entry in FIELDS.items() if name != "workload"},
    **{f"scheduler.{name}": entry for name, entry in ASHA_FIELDS.items()},
    "fusion": FUSION,
}
OBJECTIVES = ("", "at_least", "at_most")
PLAIN = "fifo"  # the scheduler that stops nothing, and the default


@dataclass
class Shown:
    """One field as the page shows it."""

    name: str
    label: str
    entry: Field
    value: str
    placeholder: str = ""

    @property
    def anchor(self) -> str:
        """The field's name as an element id."""
        return anchor(self.name)


@dataclass
class SpaceRow:
    """One hyperparameter of the space as the page shows it."""

    index: int
    name: str
    own: dict[str, Any]
    values: Values = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The chosen type of distribution."""
        return self.values.get("type", self.own["type"])


def anchor(name: str) -> str:
    """Return a field's name as part of an element id."""
    return name.replace(".", "-")


def workload_values(workload: Workload) -> Values:
    """Return what stands in an untouched form."""
    values = {name: text_of(entry.default) for name, entry in TABLE.items()}
    values["scheduler.name"] = values["scheduler.name"] or PLAIN
    values |= {f"parameters.{n}": text_of(p["default"]) for n, p in declared(workload).items()}
    return values | {"workload": workload.name, "objective": "", "bound": "", "name": "", "team": ""}


def job_values(job: Job, workload: Workload) -> Values:
    """Return what stands in a form that starts from an earlier study."""
    values, spec = workload_values(workload), dict(job.spec)
    scheduler = spec.pop("scheduler", None) or {}
    scheduler = {"name": scheduler} if isinstance(scheduler, str) else scheduler
    values |= {f"scheduler.{name}": text_of(value) for name, value in scheduler.items()}
    values |= {f"parameters.{name}": text_of(value) for name, value in (spec.get("parameters") or {}).items()}
    values |= {name: text_of(spec[name]) for name in TABLE if name in spec}
    for row in space_rows(workload, values):
        entry = (spec.get("space") or {}).get(row.name)
        if entry:
            values |= {
                f"space.{row.index}.{key}": text_of(value) for key, value in entry.items() if key != "when"
            }
    if job.objective:
        ((values["objective"], bound),) = job.objective.items()
        values["bound"] = text_of(bound)
    return values | {"name": job.name, "team": job.team.slug}


def space_rows(workload: Workload, values: Mapping[str, str]) -> list[SpaceRow]:
    """Return the rows of the space, untouched ones with the workload's own bounds."""
    rows = []
    for index, (name, own) in enumerate(declared_space_of(workload.description).items()):
        prefix = f"space.{index}."
        typed = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        start = {key: text_of(value) for key, value in own.items() if key != "when"}
        rows.append(SpaceRow(index, name, own, start | typed))
    return rows


def shown_fields(workload: Workload, values: Mapping[str, str]) -> dict[str, list[Shown]]:
    """Return the form's fields by group."""
    hints = {"epochs": str(workload.description["epochs"]), "devices": "all", "deadline_s": "none"}
    hints["target_epochs"] = "the same"
    return {
        group: [
            Shown(name, LABELS[name], TABLE[name], values.get(name, ""), hints.get(name, ""))
            for name in names
        ]
        for group, names in GROUPS.items()
    }


def body_of(values: Mapping[str, str], workload: Workload) -> dict[str, Any]:
    """Return the job body that the fields mean; what equals its default is left out."""
    spec: dict[str, Any] = {"workload": workload.name}
    for name in TABLE:
        text = values.get(name, "").strip()
        if text and text != text_of(TABLE[name].default) and "." not in name:
            spec[name] = scalar(text)
    if (chosen := values.get("scheduler.name") or PLAIN) != PLAIN:
        rest = {key: scalar(values.get(f"scheduler.{key}", "")) for key in ("grace", "reduction")}
        spec["scheduler"] = {"name": chosen, **{key: value for key, value in rest.items() if value != ""}}
    if settings := _settings(values, workload):
        spec["parameters"] = settings
    if space := _space(values, workload):
        spec["space"] = space
    body: dict[str, Any] = {
        "kind": "study",
        "name": values.get("name", "").strip(),
        "team": values.get("team", ""),
    }
    body = {key: value for key, value in body.items() if value} | {"spec": spec}
    if (side := values.get("objective", "")) in OBJECTIVES[1:]:
        body["objective"] = {side: scalar(values.get("bound", ""))}
    return body


def _settings(values: Mapping[str, str], workload: Workload) -> dict[str, Any]:
    texts = {name: values.get(f"parameters.{name}", "").strip() for name in declared(workload)}
    return {
        name: scalar(text)
        for name, text in texts.items()
        if text and text != text_of(declared(workload)[name]["default"])
    }


def declared(workload: Workload) -> dict[str, Any]:
    """Return the fixed settings that a workload declares."""
    return dict(workload.description.get("parameters") or {})


def _space(values: Mapping[str, str], workload: Workload) -> dict[str, Any]:
    space = {}
    for row in space_rows(workload, values):
        kind = KINDS.get(row.kind)
        entry: dict[str, Any] = {"type": row.kind}
        for name in kind.fields if kind else ():
            text = row.values.get(name, "")
            entry[name] = listed(text) if name == "values" else scalar(text)
        if entry != {key: value for key, value in row.own.items() if key != "when"}:
            space[row.name] = entry
    return space


def scalar(text: str) -> Any:
    """Return the number, truth value or text that a person typed."""
    text = text.strip()
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, bool | int | float):
        return value
    try:
        return float(text)
    except ValueError:
        return text


def listed(text: str) -> list[Any]:
    """Return the values of a list that a person typed, separated by commas or as JSON."""
    if text.strip().startswith("["):
        try:
            value = json.loads(text)
            return value if isinstance(value, list) else [value]
        except ValueError:
            pass
    return [scalar(part) for part in text.split(",") if part.strip()]


def text_of(value: Any) -> str:
    """Return a value as it stands in a field."""
    if value is None:
        return ""
    if isinstance(value, list):
        flat = all(not isinstance(item, list | dict | None) for item in value)
        return ", ".join(text_of(item) for item in value) if flat else json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def placed(faults: Faults, workload: Workload) -> dict[str, str]:
    """Return each fault's sentence by the field it belongs to; the key "" gathers what has no field."""
    names = list(declared_space_of(workload.description))
    found: dict[str, list[str]] = {}
    for pointer, sentence in faults:
        found.setdefault(_field_at(pointer, names), []).append(sentence)
    return {name: ". ".join(sentences) for name, sentences in found.items()}


def _field_at(pointer: str, names: list[str]) -> str:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    match parts:
        case ["name" | "team" as name]:
            return name
        case ["objective", *_]:
            return "bound"
        case ["spec", "scheduler", name]:
            return f"scheduler.{name}" if f"scheduler.{name}" in TABLE else "scheduler.name"
        case ["spec", "scheduler"]:
            return "scheduler.name"
        case ["spec", "parameters", name]:
            return f"parameters.{name}"
        case ["spec", "space", name, *rest] if name in names:
            part = rest[0] if rest and rest[0] in ("low", "high", "q", "values") else "type"
            return f"space.{names.index(name)}.{part}"
        case ["spec", name] if name in TABLE:
            return name
    return ""
