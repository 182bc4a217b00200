"""Rules for functions that make new tensors, whose sizes may turn out to be widths."""

import torch
from torch import fx

from tuning.core.hydro.widths.analysis import Analysis, Value, function_rule
from tuning.core.hydro.widths.atoms import fresh
from tuning.core.hydro.widths.rewriting import set_sizes
from tuning.core.hydro.widths.sizes import Sizes


@function_rule("zeros", "ones", "empty", "rand", "randn")
def sized(a: Analysis, node: fx.Node) -> Value:
    return _new(a, node, 0)


@function_rule("new_zeros", "new_ones", "new_empty", "full")
def sized_after_one(a: Analysis, node: fx.Node) -> Value:
    return _new(a, node, 0 if getattr(node.target, "__name__", "") == "full" else 1)


@function_rule("new_full")
def new_full(a: Analysis, node: fx.Node) -> Value:
    return _new(a, node, 1)


def _new(a: Analysis, node: fx.Node, at: int) -> Value:
    dims = [fresh(size) for size in node.meta["spec"].shape]
    if dims:
        set_sizes(a, node, at, dims)
    return dims


@function_rule("arange", "linspace", "tensor", "as_tensor")
def counted(a: Analysis, node: fx.Node) -> Value:
    """A list of numbers: where its length is a width, the surrogate takes every r-th pair of entries."""
    dims = [fresh(size) for size in node.meta["spec"].shape]

    def rewrite(sizes: Sizes) -> None:
        if not any(sizes.changes(dim) for dim in dims):
            return
        if len(dims) != 1:
            raise a.error(node, "a table made inside forward depends on a width: register it as a buffer")
        picks = spread_picks(sizes.old(dims[0]), sizes.new(dims[0]))
        name = f"_picks_{node.name}"
        a.traced.register_buffer(name, torch.tensor(picks), persistent=False)
        with node.graph.inserting_after(node):
            index = node.graph.get_attr(name)
        with node.graph.inserting_after(index):
            picked = node.graph.call_method("index_select", (node, 0, index))
        for new in (index, picked):
            new.meta["owner"] = node.meta.get("owner", "")
        node.replace_all_uses_with(picked, delete_user_cb=lambda user: user is not picked)

    a.rewrites.append(rewrite)
    return dims


def spread_picks(old: int, new: int) -> list[int]:
    """``new`` of ``old`` positions, spread evenly, in pairs where possible: a sine stays with its cosine."""
    if new % 2 or old % 2:
        return [index * old // new for index in range(new)]
    return [2 * ((index // 2) * (old // 2) // (new // 2)) + index % 2 for index in range(new)]
