"""The form of a training job as data: its fields, the job body they mean, where faults belong."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from jobs.core.states import ReconfigurationKind
from jobs.core.training.fields import FIELDS, MODEL_FIELDS, RECOVERY_FIELDS, Field

Values = dict[str, str]
Faults = list[tuple[str, str]]
WORKLOAD = "pydoc-gpt"
KINDS = [kind.value for kind in ReconfigurationKind]
KIND_HELP = {
    "rebalance": "only micro-batches move between replicas",
    "repartition": "layers move between stages",
    "regroup": "ranks form other groups or another order",
    "exclude": "a rank that works is taken out",
}
ASKS, LETS = "an admin decides", "let through at once"
POLICY = Field("choice", ASKS, "", choices=(ASKS, LETS))
SHAPE: dict[str, Field] = {
    "replicas": Field("whole", None, "Data-parallel copies of the pipeline.", 1, optional=True),
    "stages": Field("whole", None, "Pipeline stages of each replica.", 1, optional=True),
    "tensor_parallel": Field("whole", None, "Devices that share each stage.", 1, optional=True),
}
TABLE: dict[str, Field] = {
    **FIELDS,
    **{f"parameters.{name}": entry for name, entry in MODEL_FIELDS.items()},
    **{f"shape.{name}": entry for name, entry in SHAPE.items()},
    **{f"recovery.{name}": entry for name, entry in RECOVERY_FIELDS.items()},
    **{f"policy.{kind}": POLICY for kind in KINDS},
}
LABELS = {
    "schedule": "Schedule",
    "microbatches": "Micro-batches",
    "steps": "Steps",
    "checkpoint_every": "Steps per checkpoint",
    "devices": "Devices",
    "seed": "Seed",
    "lr": "Learning rate",
    "lend_bubbles": "Lend bubbles to trials",
    "lend_limit": "Slowdown by trials at most",
    "parameters.layers": "Layers",
    "parameters.width": "Width",
    "parameters.heads": "Heads",
    "parameters.context": "Context",
    "parameters.microbatch_tokens": "Tokens per micro-batch",
    "shape.replicas": "Replicas",
    "shape.stages": "Stages",
    "shape.tensor_parallel": "Tensor parallel",
    "recovery.fail_stop": "A dead device",
    "recovery.expire_s": "A plan expires after (s)",
    **{f"policy.{kind}": kind.capitalize() for kind in KINDS},
}
GROUPS = {
    "what": ("steps", "checkpoint_every", "lr", "seed"),
    "model": tuple(f"parameters.{name}" for name in MODEL_FIELDS),
    "layout": (
        "shape.replicas",
        "shape.stages",
        "shape.tensor_parallel",
        "devices",
        "schedule",
        "microbatches",
    ),
    "recovery": (*(f"policy.{kind}" for kind in KINDS), "recovery.fail_stop", "recovery.expire_s"),
    "more": ("lend_bubbles", "lend_limit"),
}


@dataclass(frozen=True)
class Shown:
    """One field as the page shows it."""

    name: str
    label: str
    entry: Field
    value: str
    help: str

    @property
    def anchor(self) -> str:
        """The field's name as an element id."""
        return anchor(self.name)

    @property
    def options(self) -> tuple[str, ...]:
        """What can be chosen; nothing for a field that is typed."""
        return ("yes", "no") if self.entry.kind == "flag" else self.entry.choices


def anchor(name: str) -> str:
    """Return a field's name as part of an element id."""
    return name.replace(".", "-")


def text_of(value: Any) -> str:
    """Return a value as it stands in a field."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value) if isinstance(value, float) else str(value)


def untouched() -> Values:
    """Return what stands in an untouched form."""
    values = {name: text_of(entry.default) for name, entry in TABLE.items()}
    return values | {"policy.rebalance": LETS, "name": "", "team": "", "layout": ""}


def values_of(spec: Mapping[str, Any]) -> Values:
    """Return what stands in a form that starts from an earlier job's complete spec."""
    values = untouched()
    values |= {name: text_of(spec[name]) for name in FIELDS if name in spec}
    values |= {
        f"parameters.{n}": text_of(v) for n, v in (spec.get("parameters") or {}).items() if n in MODEL_FIELDS
    }
    recovery = spec.get("recovery") or {}
    values |= {f"recovery.{name}": text_of(recovery[name]) for name in RECOVERY_FIELDS if name in recovery}
    values |= {f"policy.{kind}": LETS if kind in recovery.get("auto", []) else ASKS for kind in KINDS}
    if layout := spec.get("layout"):
        values["layout"] = yaml.safe_dump(layout, default_flow_style=True, width=72, sort_keys=False).strip()
        # The layout says how many there are.
        values |= {"devices": "", "microbatches": ""}
    return values


def shown_fields(values: Mapping[str, str]) -> dict[str, list[Shown]]:
    """Return the form's fields by group."""
    return {group: [_shown(name, values) for name in names] for group, names in GROUPS.items()}


def _shown(name: str, values: Mapping[str, str]) -> Shown:
    words = KIND_HELP[name.removeprefix("policy.")] if name.startswith("policy.") else TABLE[name].help
    return Shown(name, LABELS[name], TABLE[name], values.get(name, ""), words)


def body_of(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the job body that the fields mean; what equals its default is left out."""
    spec: dict[str, Any] = {"workload": WORKLOAD}
    if model := _given(values, "parameters.", MODEL_FIELDS):
        spec["parameters"] = model
    if layout := _layout(values):
        spec["layout"] = layout
    spec |= _given(values, "", FIELDS)
    if recovery := _recovery(values):
        spec["recovery"] = recovery
    head = {"kind": "training", "name": values.get("name", "").strip(), "team": values.get("team", "")}
    return {key: value for key, value in head.items() if value} | {"spec": spec}


def _given(values: Mapping[str, str], prefix: str, fields: Mapping[str, Field]) -> dict[str, Any]:
    texts = {name: values.get(prefix + name, "").strip() for name in fields}
    return {
        name: value_of(text, fields[name])
        for name, text in texts.items()
        if text and text != text_of(fields[name].default)
    }


def _layout(values: Mapping[str, str]) -> Any:
    """Return the layout as typed, or the even one that the numbers mean; None for the default."""
    if text := values.get("layout", "").strip():
        try:
            return yaml.safe_load(text[:100_000])
        except yaml.YAMLError:
            return text[:200]
    sizes = {name: values.get(f"shape.{name}", "").strip() for name in SHAPE}
    if not any(sizes.values()):
        return None
    replicas, stages, size = (value_of(text or "1", SHAPE[name]) for name, text in sizes.items())
    layers = value_of(values.get("parameters.layers", "").strip() or "0", MODEL_FIELDS["layers"])
    if not all(isinstance(n, int) and 1 <= n <= 10_240 for n in (replicas, stages, size)):
        return {"replicas": []}
    layers = layers if isinstance(layers, int) and layers > 0 else max(4, stages)
    own = [max(layers // stages + (i < layers % stages), 1) for i in range(stages)]
    return {"replicas": [{"stages": [{"layers": n, "tensor_parallel": size} for n in own]}] * replicas}


def _recovery(values: Mapping[str, str]) -> dict[str, Any]:
    given = _given(values, "recovery.", RECOVERY_FIELDS)
    auto = [kind for kind in KINDS if values.get(f"policy.{kind}") == LETS]
    return given if auto == ["rebalance"] else {"auto": auto, **given}


def value_of(text: str, entry: Field) -> Any:
    """Return the number, truth value or text that a person typed."""
    if entry.kind == "flag":
        return {"yes": True, "no": False}.get(text, text)
    if entry.kind == "choice":
        return text
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def placed(faults: Faults) -> dict[str, str]:
    """Return each fault's sentence by the field it belongs to; the key "" gathers what has no field."""
    found: dict[str, list[str]] = {}
    for pointer, sentence in faults:
        name, where = _field_at(pointer)
        found.setdefault(name, []).append(f"{where}{sentence}")
    return {name: ". ".join(sentences[:4]) for name, sentences in found.items()}


def _field_at(pointer: str) -> tuple[str, str]:
    parts = pointer.split("/")[1:]
    match parts:
        case ["name" | "team" as name]:
            return name, ""
        case ["spec", "layout", *rest]:
            return "layout", f"{'/'.join(rest)}: " if rest else ""
        case ["spec", "parameters", name, *_] if f"parameters.{name}" in TABLE:
            return f"parameters.{name}", ""
        case ["spec", "recovery", name, *_] if f"recovery.{name}" in TABLE:
            return f"recovery.{name}", ""
        case ["spec", name, *_] if name in FIELDS:
            return name, ""
    return "", f"{pointer}: " if pointer else ""


def spec_rows(spec: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return a spec as rows for reading: what people call its plain fields, and their values."""
    rows = [("Workload", spec.get("workload"))]
    rows += [(LABELS[name], _plain(spec[name])) for name in FIELDS if name in spec]
    model = spec.get("parameters") or {}
    rows += [(LABELS[f"parameters.{n}"], v) for n, v in model.items() if f"parameters.{n}" in LABELS]
    recovery = spec.get("recovery") or {}
    rows += [("Let through at once", ", ".join(recovery.get("auto", [])) or "nothing")]
    rows += [("Decided by an admin", ", ".join(recovery.get("approve", [])) or "nothing")]
    if "fail_stop" in recovery:
        rows += [("A dead device", recovery["fail_stop"])]
    return rows


def _plain(value: Any) -> Any:
    return text_of(value) if isinstance(value, bool) else value
