"""Scheduling fields of a job's spec: what any kind may ask of the queue, read strictly."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cluster.core.queue.demand import MOST_CLASS, Demand
from cluster.core.requests import MILLI, MOST_DEVICES, MOST_TASKS, TaskShape, gang
from jobs.core.errors import InvalidSpec
from jobs.core.speeds import (
    PLACE_FIELDS,
    SPEED_FIELDS,
    Faults,
    read_keeps,
    read_speeds,
    read_speedup,
    read_topology,
)

MOST_SECONDS = 10 * 365 * 86_400
MOST_BYTES = 2**50
MOST_KINDS = 20
ELASTIC_DEVICES = 4096
Schema = dict[str, Any]


def _whole(low: int, high: int, help: str) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": help}


def _seconds(help: str, *, above: bool = True) -> Schema:
    bound = {"exclusiveMinimum": 0} if above else {"minimum": 0}
    return {"type": ["number", "null"], **bound, "maximum": MOST_SECONDS, "description": help}


FIELDS: dict[str, Schema] = {
    "devices": _whole(0, MOST_DEVICES, "How many devices, wherever the queue finds them."),
    "tasks": _whole(1, MOST_TASKS, "How many tasks of `devices_per_task` devices, each inside one node."),
    "devices_per_task": _whole(1, MOST_DEVICES, "Devices of each task."),
    "milli": _whole(1, MILLI, "Thousandths of one device, instead of a whole one."),
    "memory_bytes": _whole(1, MOST_BYTES, "Memory of one device, instead of `milli`."),
    "kind": {
        "description": "Kind of device, or kinds in order of preference; the default is any.",
        "oneOf": [
            {"type": "string", "minLength": 1, "maxLength": 100},
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 100},
                "minItems": 1,
                "maxItems": MOST_KINDS,
            },
        ],
    },
    "pin": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The only node it may use."},
    "class": _whole(-MOST_CLASS, MOST_CLASS, "Higher goes first and may take from lower; the default is 0."),
    "deadline": {
        "description": "When it should have ended: a time with its zone, or seconds from submission.",
        "oneOf": [
            {"type": "string", "format": "date-time"},
            {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS},
        ],
    },
    "limit_s": _seconds("The most it will run; it is ended after that."),
    "min_runtime_s": _seconds("How long a run is safe from preemption.", above=False),
    "reservation": {
        "type": "string",
        "minLength": 1,
        "maxLength": 100,
        "description": "Name of the team's reservation whose devices it may use.",
    },
    **PLACE_FIELDS,
    **SPEED_FIELDS,
}


@dataclass(frozen=True)
class Scheduling:
    """Scheduling fields as they were given; None where they were not."""

    devices: int | None = None
    tasks: int | None = None
    devices_per_task: int | None = None
    milli: int | None = None
    memory_bytes: int | None = None
    kinds: tuple[str, ...] = ()
    pin: str = ""
    job_class: int = 0
    deadline: datetime | float | None = None
    limit_s: float | None = None
    min_runtime_s: float | None = None
    topology: tuple[str, str] | None = None
    reservation: str = ""
    speeds: tuple[tuple[str, float], ...] = ()
    speedup: tuple[float, ...] = ()
    keeps: float = 0.0

    def deadline_s(self, now_s: float) -> float | None:
        """Return the deadline in Unix seconds, for a job that is submitted now."""
        if isinstance(self.deadline, datetime):
            return self.deadline.timestamp()
        return None if self.deadline is None else now_s + self.deadline


def split_spec(spec: Mapping[str, Any], own: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (scheduling fields that were given, what is left for the kind to read).

    `own` are scheduling fields that the kind reads as well.
    """
    declared = {name: value for name, value in spec.items() if name in FIELDS and value is not None}
    rest = {name: value for name, value in spec.items() if name not in FIELDS or name in own}
    return declared, rest


def read_scheduling(declared: Mapping[str, Any], pointer: str = "/spec") -> Scheduling:
    """Return the fields, or raise InvalidSpec with a pointer and a rule for every fault."""
    faults: Faults = []
    whole = {
        name: _read_whole(declared, name, faults, pointer)
        for name in ("devices", "tasks", "devices_per_task", "milli", "memory_bytes", "class")
    }
    kinds = _read_kinds(declared.get("kind"), faults, pointer)
    pin = _read_name(declared, "pin", "the name of a node", faults, pointer)
    reservation = _read_name(declared, "reservation", "the name of a reservation", faults, pointer)
    topology = read_topology(declared.get("topology"), faults, pointer)
    speeds = read_speeds(declared.get("speeds"), faults, pointer)
    speedup = read_speedup(declared.get("speedup"), faults, pointer)
    keeps = read_keeps(declared.get("keeps"), faults, pointer)
    deadline = _read_deadline(declared.get("deadline"), faults, pointer)
    seconds = {name: _read_seconds(declared, name, faults, pointer) for name in ("limit_s", "min_runtime_s")}
    faults += [(f"{pointer}/{name}", rule) for name, rule in _contradictions(whole)]
    if faults:
        raise InvalidSpec(faults)
    return Scheduling(
        devices=whole["devices"],
        tasks=whole["tasks"],
        devices_per_task=whole["devices_per_task"],
        milli=whole["milli"],
        memory_bytes=whole["memory_bytes"],
        kinds=kinds,
        pin=pin,
        job_class=whole["class"] or 0,
        deadline=deadline,
        limit_s=seconds["limit_s"],
        min_runtime_s=seconds["min_runtime_s"],
        topology=topology,
        reservation=reservation,
        speeds=speeds,
        speedup=speedup,
        keeps=keeps,
    )


def _read_whole(declared: Mapping[str, Any], name: str, faults: Faults, pointer: str) -> int | None:
    value = declared.get(name)
    if value is None:
        return None
    low, high = FIELDS[name]["minimum"], FIELDS[name]["maximum"]
    finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not finite or value != int(value) or not low <= value <= high:
        part = " (for a part of one device use milli)" if name == "devices" else ""
        faults.append((f"{pointer}/{name}", f"must be a whole number from {low} to {high}{part}"))
        return None
    return int(value)


def _read_seconds(declared: Mapping[str, Any], name: str, faults: Faults, pointer: str) -> float | None:
    value = declared.get(name)
    if value is None:
        return None
    zero_ok = "minimum" in FIELDS[name]
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero_ok) or value > MOST_SECONDS:
        least = "from 0" if zero_ok else "above 0"
        faults.append((f"{pointer}/{name}", f"must be a number of seconds {least} to {MOST_SECONDS}"))
        return None
    return float(value)


def _read_kinds(value: Any, faults: Faults, pointer: str) -> tuple[str, ...]:
    if value is None:
        return ()
    names = [value] if isinstance(value, str) else value
    good = isinstance(names, list) and 1 <= len(names) <= MOST_KINDS
    if not good or not all(isinstance(name, str) and 1 <= len(name) <= 100 for name in names):
        faults.append((f"{pointer}/kind", "must be a kind of device or a list of kinds, best first"))
        return ()
    return tuple(dict.fromkeys(names))


def _read_name(declared: Mapping[str, Any], name: str, what: str, faults: Faults, pointer: str) -> str:
    value = declared.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or not 1 <= len(value) <= FIELDS[name]["maxLength"]:
        faults.append((f"{pointer}/{name}", f"must be {what}"))
        return ""
    return value


def _read_deadline(value: Any, faults: Faults, pointer: str) -> datetime | float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return moment
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST_SECONDS:
        return float(value)
    rule = "must be a time with its zone, such as 2030-01-31T12:00:00Z, or seconds from submission"
    faults.append((f"{pointer}/deadline", rule))
    return None


def _contradictions(whole: Mapping[str, int | None]) -> list[tuple[str, str]]:
    found = []
    if whole["devices"] is not None and (whole["tasks"] or whole["devices_per_task"]):
        found.append(("devices", "give either devices, or tasks and devices_per_task"))
    if whole["milli"] and whole["memory_bytes"]:
        found.append(("memory_bytes", "give either milli or memory_bytes"))
    share = whole["milli"] or whole["memory_bytes"]
    if share and max(whole["devices"] or 1, whole["devices_per_task"] or 1) > 1:
        found.append(
            ("milli" if whole["milli"] else "memory_bytes", "is a part of one device, not of several")
        )
    return found


def shapes_of(fields: Scheduling, devices: int) -> tuple[TaskShape, ...]:
    """Return the gang that the fields ask for; `devices` where they say nothing."""
    milli, memory = fields.milli or MILLI, fields.memory_bytes or 0
    if fields.tasks is not None or fields.devices_per_task is not None:
        return (TaskShape(fields.tasks or 1, fields.devices_per_task or 1, milli, memory),)
    count = devices if fields.devices is None else fields.devices
    if count == 1 and (memory or milli != MILLI):
        return (TaskShape(1, 1, milli, memory),)
    return gang(count)


def gang_demand(fields: Scheduling, now_s: float, *, devices: int = 1, **more: Any) -> Demand:
    """Return the demand of a job that runs on all its devices or not at all."""
    return Demand(tasks=shapes_of(fields, devices), **_common(fields, now_s), **more)


def elastic_demand(fields: Scheduling, now_s: float, **more: Any) -> Demand:
    """Return the demand of a job that takes what it can get, from one device on."""
    count = min(fields.devices or ELASTIC_DEVICES, ELASTIC_DEVICES)
    shape = TaskShape(count, 1, fields.milli or MILLI, fields.memory_bytes or 0)
    return Demand(tasks=(shape,), elastic=True, **_common(fields, now_s), **more)


def _common(fields: Scheduling, now_s: float) -> dict[str, Any]:
    return {
        "kinds": fields.kinds,
        "pin": fields.pin,
        "job_class": fields.job_class,
        "deadline_s": fields.deadline_s(now_s),
        "limit_s": fields.limit_s,
        "min_runtime_s": fields.min_runtime_s,
        "topology": fields.topology,
        "reservation": fields.reservation,
        "speeds": fields.speeds,
        "speedup": fields.speedup,
        "keeps": fields.keeps,
    }
