"""What tiling does to each operator. No rule, no tiles: an operator that is not known here runs whole."""

from jobs.core.overlap.operations import BARRIER, MUTATES, POINTWISE, RANDOM
from jobs.core.overlap.rules.algebra import ALGEBRA
from jobs.core.overlap.rules.collectives import COLLECTIVES
from jobs.core.overlap.rules.networks import NETWORKS, whole_random
from jobs.core.overlap.rules.outcome import UNKNOWN, Outcome, View, Whole
from jobs.core.overlap.rules.pointwise import alike, pointwise
from jobs.core.overlap.rules.shapes import SHAPES

_ALIKE = {
    "aten.clone.default",
    "aten.detach.default",
    "aten.alias.default",
    "aten._to_copy.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.zeros_like.default",
    "aten.ones_like.default",
    "aten.full_like.default",
    "aten.empty_like.default",
    "prims.convert_element_type.default",
}

RULES = {
    **SHAPES,
    **ALGEBRA,
    **NETWORKS,
    **COLLECTIVES,
    **dict.fromkeys(_ALIKE, alike),
    # The second operand in the shape of the first.
    "aten.copy.default": pointwise,
}


def outcome(view: View) -> Outcome:
    """How an operator with at least one tiled operand runs."""
    operation = view.operation
    if BARRIER in operation.traits:
        return Whole("it is read on the host or unknown: nothing moves across it")
    if any(fact is not None and fact.shape is None for fact in operation.results):
        return Whole("its size is known only at run time")
    if MUTATES in operation.traits:
        return Whole("it changes a tensor in place")
    if RANDOM in operation.traits:
        return whole_random(view)
    rule = RULES.get(operation.target)
    if rule is None and POINTWISE in operation.traits:
        rule = pointwise
    return Whole(UNKNOWN) if rule is None else rule(view)
