"""From the JSON form of a graph to a checked `Graph`; every fault names the node and the rule."""

import math
from typing import Any

from jobs.core.overlap.errors import MalformedGraph
from jobs.core.overlap.graph import Graph, Kind, Node

_LARGEST_SUM = 1e200
_LARGEST_SLOWDOWN = 1e6


def read_graph(document: Any) -> Graph:
    """Check a graph as `forebay overlap` reads it (docs/helix.md describes the format).

    Raises:
        MalformedGraph: with the node and the rule.
    """
    if not isinstance(document, dict):
        raise MalformedGraph("the graph has to be a JSON object with a list `nodes`")
    rows = document.get("nodes")
    if not isinstance(rows, list):
        raise MalformedGraph("nodes: a list of nodes is required")
    index_of = _names(rows)
    nodes = tuple(_node(row, position, rows, index_of) for position, row in enumerate(rows))
    _check_sums(nodes)
    in_flight = _check_values(nodes)
    _check_views(nodes, in_flight)
    budget = document.get("memory_budget")
    slowdown = document.get("slowdown")
    if slowdown is None:
        slowdown = {}
    if not isinstance(slowdown, dict):
        raise MalformedGraph("slowdown: an object with `compute` and `comm` is required")
    return Graph(
        nodes,
        _outputs(document.get("outputs"), nodes, index_of, in_flight),
        None if budget is None else _number(budget, "memory_budget"),
        _slowdown(slowdown, "compute"),
        _slowdown(slowdown, "comm"),
    )


def _slowdown(slowdown: dict[str, Any], name: str) -> float:
    value = float(_number(slowdown.get(name, 0.0), f"slowdown.{name}"))
    if value > _LARGEST_SLOWDOWN:
        raise MalformedGraph(f"slowdown.{name} has to be at most {_LARGEST_SLOWDOWN:g}")
    return value


def _names(rows: list[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for position, row in enumerate(rows):
        if not isinstance(row, dict):
            raise MalformedGraph(f"nodes[{position}]: a node has to be an object")
        name = row.get("id")
        if not isinstance(name, str) or not name:
            raise MalformedGraph(f"nodes[{position}].id: a text that is not empty is required")
        if name in found:
            raise MalformedGraph(f"node {name}: the id is used twice")
        found[name] = position
    return found


def _node(row: dict[str, Any], position: int, rows: list[Any], index_of: dict[str, int]) -> Node:
    name = row["id"]
    kind = _kind(row, name)
    occupies = kind in (Kind.COMPUTE, Kind.COMM)
    if occupies and "time" not in row:
        raise MalformedGraph(f"node {name}: time is required for a {kind.value} node")
    time_s = float(_number(row.get("time", 0.0), f"node {name}: time"))
    size = _number(row.get("bytes", 0), f"node {name}: bytes")
    latency_s = float(_number(row.get("latency", 0.0), f"node {name}: latency"))
    if occupies and latency_s > time_s:
        raise MalformedGraph(f"node {name}: latency {latency_s:g} is more than its time {time_s:g}")
    return Node(
        name,
        kind,
        time_s if occupies else 0.0,
        size if occupies else 0,
        _inputs(row, name, position, rows, index_of),
        _group(row, name, kind),
        _tile(row, name),
        _merge(row, name),
        latency_s if occupies else 0.0,
    )


def _kind(row: dict[str, Any], name: str) -> Kind:
    value = row.get("kind")
    if not isinstance(value, str) or value not in {kind.value for kind in Kind}:
        known = ", ".join(kind.value for kind in Kind)
        raise MalformedGraph(f"node {name}: kind {value!r} is not one of {known}")
    return Kind(value)


def _group(row: dict[str, Any], name: str, kind: Kind) -> str | None:
    if kind is not Kind.COMM:
        return None
    value = row.get("group")
    if not isinstance(value, str) or not value:
        raise MalformedGraph(f"node {name}: a comm needs the name of its group")
    return value


def _tile(row: dict[str, Any], name: str) -> int | None:
    value = row.get("tile")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise MalformedGraph(f"node {name}: tile has to be null or a whole number from 0 up, not {value!r}")
    return value


def _merge(row: dict[str, Any], name: str) -> str | None:
    value = row.get("merge")
    if value is not None and not isinstance(value, str):
        raise MalformedGraph(f"node {name}: merge has to be null or a text, not {value!r}")
    return value


def _inputs(
    row: dict[str, Any], name: str, position: int, rows: list[Any], index_of: dict[str, int]
) -> tuple[int, ...]:
    value = row.get("inputs", [])
    if not isinstance(value, list):
        raise MalformedGraph(f"node {name}: inputs has to be a list of ids")
    found: dict[int, None] = {}
    for source in value:
        if not isinstance(source, str) or source not in index_of:
            raise MalformedGraph(f"node {name}: input {source!r} is no node of the graph")
        if index_of[source] >= position:
            circle = _reaches(index_of[source], name, rows, index_of)
            rule = "is on a cycle with it" if circle else "is used before its definition"
            raise MalformedGraph(f"node {name}: input {source} {rule}")
        found[index_of[source]] = None
    return tuple(found)


def _reaches(start: int, name: str, rows: list[Any], index_of: dict[str, int]) -> bool:
    seen: set[int] = set()
    stack = [start]
    while stack:
        position = stack.pop()
        if rows[position]["id"] == name:
            return True
        if position in seen:
            continue
        seen.add(position)
        sources = rows[position].get("inputs", [])
        if isinstance(sources, list):
            stack += [index_of[s] for s in sources if isinstance(s, str) and s in index_of]
    return False


def _check_sums(nodes: tuple[Node, ...]) -> None:
    """Sums of times (in microseconds too) and of bytes have to stay finite."""
    time_s, size = 0.0, 0.0
    for node in nodes:
        time_s += node.time_s
        size += node.size_bytes
        if time_s > _LARGEST_SUM or size > _LARGEST_SUM:
            raise MalformedGraph(f"node {node.name}: time or bytes add up to more than {_LARGEST_SUM:g}")


def _check_values(nodes: tuple[Node, ...]) -> set[int]:
    """Check who may take what; return the nodes whose value is not there before a wait."""
    in_flight: set[int] = set()
    waitable: set[int] = set()
    for index, node in enumerate(nodes):
        if node.kind in (Kind.WAIT, Kind.VIEW) and not node.inputs:
            raise MalformedGraph(f"node {node.name}: a {node.kind.value} needs an input")
        for source in node.inputs:
            if node.kind is Kind.WAIT and source not in waitable:
                raise MalformedGraph(
                    f"node {node.name}: waits on {nodes[source].name}, which is no comm, wait or view of one"
                )
            if node.kind not in (Kind.WAIT, Kind.VIEW) and source in in_flight:
                raise MalformedGraph(
                    f"node {node.name}: takes the comm {nodes[source].name} itself, not its wait"
                )
        if node.kind is Kind.COMM or (node.kind is Kind.VIEW and in_flight.intersection(node.inputs)):
            in_flight.add(index)
        if node.kind in (Kind.COMM, Kind.WAIT) or (
            node.kind is Kind.VIEW and waitable.intersection(node.inputs)
        ):
            waitable.add(index)
    return in_flight


def _check_views(nodes: tuple[Node, ...], in_flight: set[int]) -> None:
    """A view of a collective's buffer is for a wait to take; one that nobody takes reads it too early."""
    used = {source for node in nodes for source in node.inputs}
    for index in sorted(in_flight - used):
        node = nodes[index]
        if node.kind is Kind.VIEW:
            raise MalformedGraph(
                f"node {node.name}: takes the comm {nodes[node.inputs[0]].name} itself, not its wait"
            )


def _outputs(
    value: Any, nodes: tuple[Node, ...], index_of: dict[str, int], in_flight: set[int]
) -> tuple[int, ...]:
    if value is None:
        used = {source for node in nodes for source in node.inputs}
        return tuple(index for index in range(len(nodes)) if index not in used)
    if not isinstance(value, list):
        raise MalformedGraph("outputs: a list of ids is required")
    found: dict[int, None] = {}
    for name in value:
        if not isinstance(name, str) or name not in index_of:
            raise MalformedGraph(f"outputs: {name!r} is no node of the graph")
        index = index_of[name]
        if index in found:
            raise MalformedGraph(f"outputs: {name} is listed twice")
        if index in in_flight:
            raise MalformedGraph(f"outputs: {name} is a comm; only its wait has the value")
        found[index] = None
    return tuple(found)


def _number(value: Any, what: str) -> float:
    """A finite number from 0 up; whole numbers stay whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedGraph(f"{what} has to be a number, not {value!r}")
    try:
        finite = math.isfinite(float(value))
    except OverflowError:
        finite = False
    if not finite:
        raise MalformedGraph(f"{what} has to be finite")
    if value < 0:
        raise MalformedGraph(f"{what} has to be 0 or more, not {value!r}")
    return int(value) if isinstance(value, float) and value.is_integer() else value
