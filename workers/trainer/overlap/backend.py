"""`torch.compile(model, backend="forebay")`: forward and backward run in the order that hides communication.

The graphs are executed as they are scheduled, operator by operator; no later pass moves anything. The
order is planned from the cost model of the cluster named in `options={"cluster": ...}`, equally on all
ranks, and the ranks compare their plans before the first collective.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import default_partition
from torch.fx import GraphModule

from jobs.core.overlap.assembly import assemble
from jobs.core.overlap.clusters import read_cluster
from jobs.core.overlap.documents import plan_document
from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.planner import POLICIES, Plan, make_plan
from jobs.core.overlap.rewriting import plan_digests, reorder
from workers.trainer.overlap.agreement import agree
from workers.trainer.overlap.conversion import aliases_of, is_ordered, module_of, program_of
from workers.trainer.overlap.worlds import ranks_of_group

_KNOWN = {"cluster": "a100x8", "policy": "bucketed", "memory_budget": None, "report": None}


def forebay(module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """The backend.

    Options:
        cluster: whose cost model to plan with. policy: one of the policies of `forebay overlap`.
        memory_budget: bytes of activations, or None. report: called with each plan's document.
    """
    given = dict(options or {})
    for name in given:
        if name not in _KNOWN:
            raise ProgramRefused(f"options: {name} is not one of {', '.join(_KNOWN)}")
    chosen = {**_KNOWN, **given}
    if chosen["policy"] not in POLICIES:
        raise ProgramRefused(f"options: policy is one of {', '.join(POLICIES)}")
    compiler = _compiler(chosen)
    compiled = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, partition_fn=default_partition)
    return compiled(module, inputs)


def _compiler(options: Mapping[str, Any]) -> Callable[..., Any]:
    def compile_(module: GraphModule, inputs: Sequence[Any]) -> Any:
        module.graph.eliminate_dead_code(is_impure_node=is_ordered)
        program = program_of(module)
        work = assemble(program, (1,), ranks_of_group, aliases_of(module))
        cluster = read_cluster(options["cluster"]).cluster
        plan = make_plan(work.on(cluster, budget_bytes=options["memory_budget"]), options["policy"], 0)
        if options["report"] is not None:
            options["report"](plan_document(plan))
        order, buckets = _names(plan)
        ordered = reorder(program, order, buckets)
        return make_boxed_func(_checked_first(module_of(ordered, module), plan_digests(ordered, program)))

    return compile_


def _names(plan: Plan) -> tuple[list[str], list[list[str]]]:
    nodes = plan.graph.nodes
    steps = [[nodes[member].name for member in step] for step in plan.chosen.steps]
    return [name for step in steps for name in step], [step for step in steps if len(step) > 1]


def _checked_first(module: GraphModule, digests: Mapping[str, str]) -> Callable[..., Any]:
    agreed = False

    def run(*values: Any) -> Any:
        nonlocal agreed
        if not agreed:
            agree(digests)
            agreed = True
        return module(*values)

    return run


if "forebay" not in torch._dynamo.list_backends(exclude_tags=()):
    register_backend(forebay, name="forebay")
