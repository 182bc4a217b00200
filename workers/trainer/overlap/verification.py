"""The rewritten graph against the original on every rank: equal up to rounding, and bitwise in any order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.operations import CapturedProgram
from jobs.core.overlap.program import Program
from jobs.core.overlap.rewriting import plan_digests, reorder
from jobs.core.overlap.tiling import TiledProgram, tile
from workers.trainer.overlap.capture import Captured, capture_program, placeholders
from workers.trainer.overlap.conversion import module_of
from workers.trainer.overlap.ranks import RanksDisagree, Values, run_ranks
from workers.trainer.overlap.worlds import world_size

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@dataclass(frozen=True)
class Verification:
    """What running every rank showed.

    Attributes:
        max_rel_error: the largest difference to the original over the largest value there, over all outputs.
        reordered_equals_serial: tiles in the plan's order and one after the other agree bit for bit.
    """

    ranks: int
    max_rel_error: float
    reordered_equals_serial: bool
    tolerance: float
    rehearsal: bool

    @property
    def passed(self) -> bool:
        return self.max_rel_error <= self.tolerance and self.reordered_equals_serial

    def to_json(self) -> dict[str, Any]:
        return {
            "ranks": self.ranks,
            "max_rel_error": self.max_rel_error,
            "reordered_equals_serial": self.reordered_equals_serial,
            "passed": self.passed,
            "size": "rehearsal" if self.rehearsal else "as given",
        }


def capture_ranks(program: Program, first: Captured | None = None, *, alike: bool = False) -> list[Captured]:
    """Every rank's graph.

    Args:
        first: that of rank 0, where it is known.
        alike: where first and last rank have the same graph, those between have it too.
    """
    count = world_size(program.groups)
    found = [first or capture_program(program, 0)]
    if count > 1:
        last = capture_program(program, count - 1)
        if alike and last.program == found[0].program and len(found[0].groups) <= 1:
            found += [replace(found[0], rank=rank) for rank in range(1, count)]
        else:
            found += [capture_program(program, rank) for rank in range(1, count - 1)] + [last]
    return found


def verify(
    program: Program,
    tiles: int,
    order: Sequence[str],
    buckets: Sequence[Sequence[str]],
    *,
    first: Captured | None = None,
    rehearsal: bool = False,
    seed: int = 0,
) -> Verification:
    """Run original, tiles one after the other, and tiles in a plan's order, on all ranks in this process.

    Args:
        first: rank 0 of the program, where it was captured already.

    Raises:
        RanksDisagree: the ranks would not exchange the same collectives in the same order.
        ProgramRefused: a rank's graph has other operators than the plan.
    """
    captured = capture_ranks(program, first, alike=rehearsal)
    tiled = [tile(one.program, one.batch_dims, tiles) for one in captured]
    originals = [module_of(one.program, one.module) for one in captured]
    serial = [module_of(of.program, one.module) for one, of in zip(captured, tiled, strict=True)]
    moved_programs = [_moved(of, order, buckets) for of in tiled]
    check_agreement(moved_programs, captured)
    moved = [module_of(of, one.module) for one, of in zip(captured, moved_programs, strict=True)]
    values = [rank_values(program, rank, seed) for rank in range(len(captured))]
    groups = [one.ranks_of for one in captured]
    expected = _outcome(originals, values, groups)
    one_by_one = _outcome(serial, values, groups)
    reordered = _outcome(moved, values, groups)
    dtypes = {leaf.dtype for leaf in _tensors(expected) if leaf.is_floating_point()}
    return Verification(
        len(captured),
        max((relative_error(a, b) for a, b in zip(expected, one_by_one, strict=True)), default=0.0),
        all(bitwise_equal(a, b) for a, b in zip(one_by_one, reordered, strict=True)),
        max((TOLERANCE.get(dtype, 1e-5) for dtype in dtypes), default=0.0),
        rehearsal,
    )


def _moved(tiled: TiledProgram, order: Sequence[str], buckets: Sequence[Sequence[str]]) -> CapturedProgram:
    names = {operation.name for operation in tiled.program.operations}
    if not names <= set(order):
        raise ProgramRefused("a rank's graph has other operators than the one that was planned for")
    return reorder(tiled.program, [name for name in order if name in names], buckets)


def check_agreement(programs: Sequence[CapturedProgram], captured: Sequence[Captured]) -> None:
    """Compare the digests of every group over its ranks.

    Raises:
        RanksDisagree: two ranks of a group would issue different collectives.
    """
    seen: dict[tuple[int, ...], dict[int, str]] = {}
    for rank, (program, one) in enumerate(zip(programs, captured, strict=True)):
        for group, digest in plan_digests(program, one.program).items():
            seen.setdefault(one.ranks_of(group), {})[rank] = digest
    for ranks, digests in seen.items():
        if len(digests) != len(ranks) or len(set(digests.values())) != 1:
            raise RanksDisagree(
                f"the ranks {list(ranks)} do not issue the same collectives in the same order"
            )


def _outcome(modules: Sequence[Any], values: Sequence[Values], groups: Sequence[Any]) -> list[Any]:
    """Outputs and what became of the inputs, per rank."""
    copies = [[value.clone() for value in mine] for mine in values]
    with torch.no_grad():
        outputs = run_ranks(modules, copies, groups)
    return [[output, copy] for output, copy in zip(outputs, copies, strict=True)]


def rank_values(program: Program, rank: int, seed: int) -> Values:
    """Tensors for one rank: given values as they are on rank 0, parameters a little different elsewhere."""
    names, given = placeholders(program)
    found: Values = []
    for position, (name, value) in enumerate(zip(names, given, strict=True)):
        parameter = name.startswith("params.")
        generator = torch.Generator().manual_seed(
            seed * 1_000_003 + position * 1009 + (rank if parameter else 0)
        )
        real = isinstance(value, torch.Tensor) and value.device.type != "meta"
        if not real:
            shape = tuple(value.shape) if isinstance(value, torch.Tensor) else tuple(value)
            dtype = value.dtype if isinstance(value, torch.Tensor) else torch.float32
            scale = max(1, shape[0]) ** -0.5 if parameter and len(shape) > 1 else 1.0
            found.append((torch.randn(shape, generator=generator) * scale).to(dtype))
        elif parameter and rank and value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator) * 0.01
            found.append((value.detach() * (1 + noise)).to(value.dtype))
        else:
            found.append(value.detach().clone())
    return found


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def relative_error(expected: Any, found: Any) -> float:
    """Over all tensors the largest difference over the largest value; infinite where only one is finite."""
    worst = 0.0
    for first, second in zip(_tensors(expected), _tensors(found), strict=True):
        if not first.is_floating_point():
            if not torch.equal(first, second):
                return float("inf")
            continue
        one, two = first.double(), second.double()
        finite = torch.isfinite(one)
        if not torch.equal(finite, torch.isfinite(two)):
            return float("inf")
        one, two = one[finite], two[finite]
        if one.numel():
            difference, largest = float((one - two).abs().max()), float(one.abs().max())
            worst = max(worst, difference / largest if largest else (float("inf") if difference else 0.0))
    return worst


def bitwise_equal(first: Any, second: Any) -> bool:
    """Same bits in every tensor; NaN equals NaN."""
    pairs = zip(_tensors(first), _tensors(second), strict=True)
    return all(
        a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in pairs
    )
