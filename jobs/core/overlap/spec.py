"""The spec of an overlap job: checked fields with their defaults, every fault with a pointer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.core.errors import InvalidSpec
from jobs.core.overlap.builtin import BUILT_IN_PROGRAMS, is_reference, size_faults
from jobs.core.overlap.clusters import read_cluster
from jobs.core.overlap.errors import UnknownCluster
from jobs.core.overlap.planner import POLICIES

MOST_TILES = 64
LARGEST_SLOWDOWN = 100.0
DEFAULTS: dict[str, Any] = {
    "program": None,
    "size": None,
    "tiles": "auto",
    "cluster": "a100x8",
    "policy": "bucketed",
    "memory_budget": None,
    "slowdown": {"compute": 0.0, "comm": 0.0},
}


@dataclass
class _Faults:
    found: list[tuple[str, str]]

    def add(self, field: str, rule: str) -> None:
        self.found.append((f"/spec/{field}", rule))


def check_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The complete spec; `size` only where one was given.

    Raises:
        InvalidSpec: with a pointer and a sentence for every fault.
    """
    faults = _Faults([])
    for name in spec:
        if name not in DEFAULTS:
            faults.add(
                str(name).replace("~", "~0").replace("/", "~1"),
                f"is no known field; {', '.join(DEFAULTS)} are",
            )
    values = {**DEFAULTS, **{name: value for name, value in spec.items() if name in DEFAULTS}}
    _program(values["program"], faults)
    _size(values["size"], values["program"], faults)
    _tiles(values["tiles"], faults)
    try:
        read_cluster(values["cluster"])
    except UnknownCluster as error:
        faults.add("cluster", str(error))
    if values["policy"] not in POLICIES:
        faults.add("policy", f"must be one of {', '.join(POLICIES)}")
    budget = values["memory_budget"]
    if budget is not None and not _number(budget, 1e18):
        faults.add("memory_budget", "must be null or a number of bytes from 0 up")
    values["slowdown"] = _slowdown(values["slowdown"], faults)
    if faults.found:
        raise InvalidSpec(faults.found)
    if values["size"] is None:
        del values["size"]
    return values


def _program(value: Any, faults: _Faults) -> None:
    if value is None:
        faults.add("program", "is required: a built-in name or module:function")
    elif not isinstance(value, str) or not is_reference(value):
        names = ", ".join(BUILT_IN_PROGRAMS)
        faults.add("program", f"must be one of {names}, or module:function")


def _size(value: Any, program: Any, faults: _Faults) -> None:
    if value is None:
        return
    if isinstance(program, str) and program not in BUILT_IN_PROGRAMS:
        faults.add("size", "is for built-in programs; a program of your own sets its sizes itself")
        return
    for fault in size_faults(value):
        faults.add("size", fault)


def _tiles(value: Any, faults: _Faults) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_TILES
    if value != "auto" and not whole:
        faults.add("tiles", f"must be auto or a whole number from 1 to {MOST_TILES}")


def _slowdown(value: Any, faults: _Faults) -> dict[str, float]:
    """One number for both, or an object."""
    given = {"compute": value, "comm": value} if not isinstance(value, Mapping) else dict(value)
    for name, number in given.items():
        if name not in ("compute", "comm"):
            faults.add("slowdown", "must be a number, or an object with compute and comm")
        elif not _number(number, LARGEST_SLOWDOWN):
            faults.add("slowdown", f"must be from 0 to {LARGEST_SLOWDOWN:g}")
    both = {"compute": given.get("compute", 0.0), "comm": given.get("comm", 0.0)}
    return {name: float(n) if _number(n, LARGEST_SLOWDOWN) else 0.0 for name, n in both.items()}


def _number(value: Any, most: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= most
    )
