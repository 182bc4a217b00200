"""A program in the order of a plan, and what every rank must agree on before it runs."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from jobs.core.overlap.operations import COLLECTIVE, CapturedProgram, Operation, Ref, TensorFact, refs

_ALL_REDUCE = "_c10d_functional.all_reduce.default"
_MERGED = "_c10d_functional.all_reduce_coalesced.default"


def reorder(
    program: CapturedProgram, order: Sequence[str], buckets: Sequence[Sequence[str]] = ()
) -> CapturedProgram:
    """The same operators in another order; merged all-reduces become one call with several tensors.

    Args:
        order: names of operators; names that are none (host barriers of the schedule) are passed over.
        buckets: names that were merged.
    """
    operations = {operation.name: operation for operation in program.operations}
    bucket_of = {name: tuple(bucket) for bucket in buckets for name in bucket}
    found: list[Operation] = []
    done: set[str] = set()
    for name in order:
        if name not in operations or name in done:
            continue
        bucket = bucket_of.get(name, (name,))
        done.update(bucket)
        found += [operations[name]] if len(bucket) == 1 else _coalesced([operations[one] for one in bucket])
    if len(done) != len(operations):
        raise ValueError("the order does not name every operator of the program")
    return CapturedProgram(program.inputs, tuple(found), program.outputs)


def _coalesced(members: list[Operation]) -> list[Operation]:
    """One collective for several tensors, and each member's result under its own name."""
    first = members[0]
    name = f"{first.name}_merged"
    tensors = [member.args[0] for member in members]
    facts = tuple(member.results[0] for member in members)
    together = replace(
        first, name=name, target=_MERGED, args=(tensors, *first.args[1:]), results=facts, single=False
    )
    picks = [
        replace(member, target="getitem", args=(Ref(name), index), traits=frozenset())
        for index, member in enumerate(members)
    ]
    return [together, *picks]


def plan_digests(program: CapturedProgram, captured: CapturedProgram | None = None) -> dict[str, str]:
    """For each group a digest of its collectives in issue order: which one, of which tile, shapes, types.

    Ranks whose digests differ would answer each other's collectives wrongly, or wait for ever; where shapes
    are equal, nothing else would notice. Sizes of the parts of an all-to-all may differ between ranks and are
    left out.

    Args:
        captured: the program before it was tiled and reordered; its collectives are told apart by their place
            among those of their group there.
    """
    facts: dict[str, TensorFact | None] = dict(program.inputs)
    places = _places(captured or program)
    members = _bucket_members(program)
    sequences: dict[str, list[object]] = {}
    for operation in program.operations:
        facts[operation.name] = operation.results[0] if operation.single else None
        if COLLECTIVE not in operation.traits:
            continue
        taken = [facts.get(ref.name) for ref in refs(operation.args[0])]
        exact = "all_to_all" not in operation.target
        shapes = [
            [list(fact.shape or ()) if exact else None, fact.dtype] for fact in taken if fact is not None
        ]
        rest = [value for value in operation.args[1:] if isinstance(value, str)]
        together = [one for one in members.get(operation.name, []) if one.source in places]
        which = [[places.get(one.source or one.name), one.tile] for one in together or [operation]]
        sequences.setdefault(str(rest[-1]), []).append([operation.target, which, shapes, rest])
    return {
        group: hashlib.sha256(json.dumps(sequence).encode()).hexdigest()
        for group, sequence in sequences.items()
    }


def _places(program: CapturedProgram) -> dict[str, int]:
    """Each collective's place among those of its group, which does not depend on names."""
    counts: dict[str, int] = {}
    found: dict[str, int] = {}
    for operation in program.operations:
        if COLLECTIVE in operation.traits:
            group = str([value for value in operation.args if isinstance(value, str)][-1])
            found[operation.name] = counts[group] = counts.get(group, -1) + 1
    return found


def _bucket_members(program: CapturedProgram) -> dict[str, list[Operation]]:
    """The collectives that became one call, in the order of its tensors; each keeps its name as a pick."""
    merged = {operation.name for operation in program.operations if operation.target == _MERGED}
    found: dict[str, list[Operation]] = {}
    for operation in program.operations:
        source = operation.args[0] if operation.target == "getitem" else None
        if isinstance(source, Ref) and source.name in merged:
            found.setdefault(source.name, []).append(operation)
    return found
