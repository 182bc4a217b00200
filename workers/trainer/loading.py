"""Finds workloads: by registered name (entry-point group `forebay.workloads`) or `package.module:Name`."""

import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tuning.core.errors import Problem, SpecError, WorkloadError, escape
from tuning.core.workload import Workload, check_workload

GROUP = "forebay.workloads"


def registered() -> dict[str, EntryPoint]:
    """Return every registered workload by name; of two with one name the first in the alphabet counts."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return {point.name: point for point in reversed(points)}


def load_workload(reference: str, parameters: Mapping[str, Any] | None = None) -> Workload:
    """Return a workload ready to use.

    WorkloadError says why a name cannot be one, SpecError which parameter is wrong.
    """
    try:
        return _instance(find(reference), reference, dict(parameters or {}))
    except SpecError as error:
        raise SpecError([Problem(f"/parameters{p.pointer}", p.detail) for p in error.problems]) from error


def find(reference: str) -> Any:
    """Return the class, instance or decorated function behind a reference."""
    points = registered()
    if reference in points:
        try:
            return points[reference].load()
        except Exception as error:
            raise WorkloadError(
                f"workload {reference} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    module_name, _, name = reference.partition(":")
    if not name:
        known = ", ".join(sorted(points)) or "none"
        raise WorkloadError(
            f"workload must be a registered name ({known}) or package.module:Name; {reference!r} is neither"
        )
    return _import(module_name, name)


def _import(module_name: str, name: str) -> Any:
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise WorkloadError(
            f"workload module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise WorkloadError(f"workload {module_name}:{name} does not exist: no {part!r} there")
        found = getattr(found, part)
    return found


def _instance(found: Any, reference: str, parameters: dict[str, Any]) -> Workload:
    if inspect.isclass(found) and issubclass(found, Workload):
        try:
            instance = found(**parameters)
        except TypeError as error:
            raise WorkloadError(f"workload {reference} cannot be created: {error}") from error
    elif isinstance(found, Workload):
        if parameters:
            raise SpecError(
                [Problem(f"/{escape(name)}", "is not taken by this workload") for name in parameters]
            )
        instance = found
    else:
        kind = type(found).__name__
        raise WorkloadError(
            f"workload {reference} is a {kind}; it must be a forebay.Workload or use @forebay.workload"
        )
    check_workload(instance)
    return instance
