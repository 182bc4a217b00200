"""The fused graph as plain Python: one line per call, each value forgotten after its last use."""

import math
from collections.abc import Callable
from typing import Any

from torch import fx


def compiled(graph: fx.Graph) -> tuple[Callable[..., Any], str]:
    """The graph as a function of its placeholders, and the source of that function."""
    scope: dict[str, Any] = {}
    arguments: list[str] = []
    lines: list[str] = []
    dying = _last_uses(graph)
    for node in graph.nodes:
        if node.op == "placeholder":
            arguments.append(node.name)
        elif node.op == "call_function":
            called = _bound(scope, getattr(node.target, "__name__", "call"), node.target)
            given = [_written(arg, scope) for arg in node.args]
            given += [f"{key}={_written(value, scope)}" for key, value in node.kwargs.items()]
            assignment = f"{node.name} = " if node.users else ""
            lines.append(f"{assignment}{called}({', '.join(given)})")
            if dying.get(node):
                lines.append(f"del {', '.join(dying[node])}")
        else:
            lines.append(f"return {_written(node.args[0], scope)}")
    body = "\n    ".join(lines)
    source = f"def forward({', '.join(arguments)}):\n    {body}\n"
    exec(compile(source, "<fused graph>", "exec"), scope)
    return scope["forward"], source


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[str]]:
    """The computed values that each node is the last to read."""
    seen: set[fx.Node] = set()
    dying: dict[fx.Node, list[str]] = {}
    for node in reversed(graph.nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                if used.op == "call_function":
                    dying.setdefault(node, []).append(used.name)
    return dying


def _written(value: Any, scope: dict[str, Any]) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if type(value) in (bool, int, str, type(None), type(Ellipsis)):
        return repr(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if isinstance(value, slice):
        parts = (_written(part, scope) for part in (value.start, value.stop, value.step))
        return f"slice({', '.join(parts)})"
    if isinstance(value, list):
        return f"[{', '.join(_written(item, scope) for item in value)}]"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return "(" + "".join(f"{_written(item, scope)}, " for item in value) + ")"
    if isinstance(value, dict):
        items = (f"{_written(key, scope)}: {_written(item, scope)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    return _bound(scope, getattr(value, "__name__", type(value).__name__), value)


def _bound(scope: dict[str, Any], name: str, value: Any) -> str:
    """A name for an object in the function's globals; one object has one name."""
    stem = "".join(char if char.isalnum() else "_" for char in name)
    candidate, number = f"f_{stem}", 1
    while candidate in scope and scope[candidate] is not value:
        number += 1
        candidate = f"f_{stem}_{number}"
    scope[candidate] = value
    return candidate
