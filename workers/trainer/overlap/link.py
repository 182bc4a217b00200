"""Execute a graph with a link whose speed is given: results are real, completion is held back.

A collective completes when its group's link would have carried it: start at issue or when the link is free,
then alpha + bytes / bandwidth. The link costs no processor time, so that overlap is possible on few cores.
"""

import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from jobs.core.overlap.operations import COLLECTIVE, WAIT, Operation
from workers.trainer.overlap.conversion import program_of

_SPIN_S = 0.0005


@dataclass
class LinkRun:
    """One execution.

    Attributes:
        link_s: seconds that each collective takes on its link, by node.
        seconds: of each node; of a wait how long it stood still.
        outcome: what whoever ran it keeps of its results.
        peak_bytes: the most that was held at once in storages that the graph made; only with
            `weighing`, since looking at storages takes time.
    """

    link_s: Mapping[str, float]
    weighing: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    makespan_s: float = 0.0
    peak_bytes: int = 0
    outcome: Any = None

    def run(
        self, module: GraphModule, values: list[torch.Tensor], together: Callable[[], object] = lambda: None
    ) -> Any:
        """Execute the graph in its order and return its outputs.

        Args:
            together: called right before the clock starts, so that the ranks begin at one time.
        """
        operations = {operation.name: operation for operation in program_of(module).operations}
        last_use = _last_uses(module)
        ours = {value.untyped_storage().data_ptr() for value in values}
        held: dict[Node, Any] = {}
        flights: dict[Node, tuple[float, Any]] = {}
        free_s: dict[str, float] = {}
        given = iter(values)
        together()
        began = time.perf_counter()
        for node in module.graph.nodes:
            if node.op == "placeholder":
                held[node] = next(given)
            elif node.op == "get_attr":
                held[node] = getattr(module, str(node.target))
            elif node.op == "output":
                self.makespan_s = time.perf_counter() - began
                return map_arg(node.args[0], lambda n: held[n])
            else:
                step_began = time.perf_counter()
                self._step(node, operations[node.name], held, flights, free_s)
                if self.weighing:
                    self._weigh(held, flights, ours)
            for gone in last_use.get(node, ()):
                held.pop(gone, None)
            if node.op == "call_function":
                # With what it takes to give back what it used last.
                self.seconds[node.name] = time.perf_counter() - step_began
        return None

    def _step(
        self,
        node: Node,
        operation: Operation,
        held: dict[Node, Any],
        flights: dict[Node, tuple[float, Any]],
        free_s: dict[str, float],
    ) -> None:
        began = time.perf_counter()
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: held[n])
        assert callable(node.target)
        held[node] = node.target(*args, **kwargs)
        if COLLECTIVE in operation.traits:
            group = str(args[-1])
            end = max(free_s.get(group, 0.0), began) + self.link_s[node.name]
            free_s[group] = end
            # An asynchronous library may read its input until the wait.
            flights[node] = (end, args[0])
        elif WAIT in operation.traits:
            source = node.args[0]
            # A merged collective is waited for by its parts; each part has the name of what was merged.
            if isinstance(source, Node) and source.target is operator.getitem:
                source = source.args[0]
            if isinstance(source, Node) and source in flights:
                _sleep_until(flights.pop(source)[0])

    def _weigh(self, held: dict[Node, Any], flights: dict[Node, tuple[float, Any]], ours: set[int]) -> None:
        storages = {}
        for leaf in tree_leaves([list(held.values()), [given for _, given in flights.values()]]):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        made = sum(-(-size // 512) * 512 for pointer, size in storages.items() if pointer not in ours)
        self.peak_bytes = max(self.peak_bytes, made)


def _last_uses(module: GraphModule) -> dict[Node, list[Node]]:
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(module.graph.nodes):
        for source in node.all_input_nodes:
            if source not in seen:
                seen.add(source)
                found.setdefault(node, []).append(source)
        if node.op == "call_function" and not node.users:
            found.setdefault(node, []).append(node)
    return found


def _sleep_until(end_s: float) -> None:
    """Sleep most of the way, then look at the clock."""
    left = end_s - time.perf_counter()
    if left > _SPIN_S:
        time.sleep(left - _SPIN_S)
    while time.perf_counter() < end_s:
        pass
