"""Outputs in the user's own class: a data class or named tuple, built from values of all trials."""

from typing import Any

from tuning.core.hydro.fused_graph import Fuser, Layout, Value, module_rule
from tuning.core.hydro.tracing.structure import BuildOutput


@module_rule(BuildOutput)
def build_output(fuser: Fuser, module: BuildOutput, path: str, *values: Any) -> Value:
    """The fields with their trials first."""
    nodes = [_in_front(fuser, value) for value in values]
    return Value(fuser.emit(_call_of(module), *nodes), Layout.FIRST)


def _in_front(fuser: Fuser, value: Any) -> Any:
    if isinstance(value, Value):
        return fuser.first(value)
    if isinstance(value, tuple | list):
        return type(value)(_in_front(fuser, item) for item in value)
    if isinstance(value, dict):
        return {key: _in_front(fuser, item) for key, item in value.items()}
    return value


def _call_of(module: BuildOutput) -> Any:
    def build(*values: Any) -> Any:
        return module.kind(**dict(zip(module.fields, values, strict=True)))

    return build
