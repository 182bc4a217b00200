"""Taking trials out of containers and putting them together again, with everything they carry."""

from collections.abc import Sequence
from typing import Any

import torch

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.fused_module import Blueprint, FusedModule, joined
from tuning.core.hydro.likeness import check_alike
from tuning.core.hydro.optimizers.trial_optimizer import TrialOptimizer
from tuning.core.hydro.schedules import TrialScheduler, carried_on

Part = tuple[FusedModule, TrialOptimizer | None]


def defuse(
    fused: FusedModule, optimizer: TrialOptimizer | None, keep: Sequence[int]
) -> tuple[FusedModule, TrialOptimizer | None]:
    """A new container of the trials ``keep``, in that order, and its optimizer.

    Weights, buffers, optimizer state, random streams and schedules (``part_optimizer.schedulers``) go on
    where they are; gradients do not come along. The given container is left as it is.

    Raises ``FuseError`` for trials that are not there or are named twice.
    """
    _check_part(fused, optimizer)
    listed = _checked_trials(fused, keep)
    return _assembled([(fused, optimizer, index) for index in listed])


def merge(parts: Sequence[Part]) -> tuple[FusedModule, TrialOptimizer | None]:
    """One container of all trials of several, in their order, and one optimizer for them.

    All parts have to be containers of models of one shape, trained by the same kind of optimizer with the
    same number of schedules. The parts are left as they are.

    Raises ``FuseError`` naming what the parts disagree in.
    """
    listed = list(parts)
    if not listed:
        raise FuseError("merge got no parts: give a list of (fused, optimizer)")
    for part in listed:
        if not isinstance(part, tuple) or len(part) != 2:
            raise FuseError("merge needs a list of pairs (fused, optimizer)")
        _check_part(*part)
    first, first_optimizer = listed[0]
    for index, (fused, optimizer) in enumerate(listed[1:], start=1):
        _check_compatible(first, fused, index)
        _check_optimizers(first_optimizer, optimizer, index)
    listed = _unshared(listed)
    return _assembled([(fused, opt, index) for fused, opt in listed for index in range(fused.trials)])


def _check_part(fused: Any, optimizer: Any) -> None:
    if not isinstance(fused, FusedModule):
        raise FuseError(f"expected a fused module, got a {type(fused).__name__}: make one with hydro.fuse")
    if optimizer is not None and not isinstance(optimizer, TrialOptimizer):
        raise FuseError(f"expected an optimizer made by hydro.optimizer, got a {type(optimizer).__name__}")
    if optimizer is not None and optimizer.module is not fused:
        raise FuseError("the optimizer belongs to another module: give the one made for this container")


def _checked_trials(fused: FusedModule, keep: Sequence[int]) -> list[int]:
    listed = list(keep)
    if not listed:
        raise FuseError("keep is empty: a container needs at least one trial")
    for index in listed:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < fused.trials:
            raise FuseError(f"keep holds {index!r}: trials of this container are 0 to {fused.trials - 1}")
    if len(set(listed)) != len(listed):
        raise FuseError("keep names a trial twice")
    return listed


def _check_compatible(first: FusedModule, other: FusedModule, index: int) -> None:
    if first.training != other.training:
        raise FuseError(f"parts[{index}] is in another mode than parts[0]: call train() or eval() on both")
    if first.blueprint is not other.blueprint:
        try:
            check_alike([first.blueprint.template, other.blueprint.template], first.blueprint.example_inputs)
        except FuseError as error:
            raise FuseError(f"parts[{index}] holds other models than parts[0]: {error}") from error


def _check_optimizers(first: TrialOptimizer | None, other: TrialOptimizer | None, index: int) -> None:
    if (first is None) != (other is None):
        raise FuseError("merge needs an optimizer for every part or for none")
    if first is None or other is None:
        return
    if type(first) is not type(other):
        raise FuseError(
            f"parts[{index}] has a {type(other).__name__} and parts[0] a {type(first).__name__}: only trials "
            "of one kind of optimizer share a container"
        )
    if len(first.schedulers) != len(other.schedulers):
        raise FuseError(f"parts[{index}] has another number of schedulers than parts[0]")


def _unshared(parts: list[Part]) -> list[Part]:
    """The parts, with buffers that differ between them held per trial.

    A buffer that all trials of a container agree in is held once; containers may disagree.
    """
    first = parts[0][0]
    names = set(first.blueprint.shared_names)
    for fused, _ in parts[1:]:
        names &= fused.blueprint.shared_names
        tensors = fused.tensors()
        names = {name for name in names if torch.equal(tensors[name], first.tensors()[name])}
    shared = frozenset(names)
    if all(fused.blueprint.shared_names == shared for fused, _ in parts):
        return parts
    blueprint = Blueprint(first.blueprint.template, first.blueprint.example_inputs, shared)
    return [(_with_blueprint(fused, blueprint), optimizer) for fused, optimizer in parts]


def _with_blueprint(fused: FusedModule, blueprint: Blueprint) -> FusedModule:
    tensors = {
        name: tensor.detach().expand(fused.trials, *tensor.shape).clone()
        if name in fused.blueprint.shared_names and name not in blueprint.shared_names
        else tensor.detach()
        for name, tensor in fused.tensors().items()
    }
    return FusedModule(blueprint, tensors, fused.streams).train(fused.training)


def _assembled(
    rows: list[tuple[FusedModule, TrialOptimizer | None, int]],
) -> tuple[FusedModule, TrialOptimizer | None]:
    whole = joined([(fused, index) for fused, _, index in rows])
    if rows[0][1] is None:
        return whole, None
    sources = [(optimizer, index) for _, optimizer, index in rows if optimizer is not None]
    return whole, optimizer_of(whole, sources)


def optimizer_of(module: FusedModule, rows: Sequence[tuple[TrialOptimizer, int]]) -> TrialOptimizer:
    """An optimizer for a container, each trial of which goes on where it was in another optimizer."""
    from tuning.core.hydro.optimizers.targets import targets_of

    first = rows[0][0]
    groups = [dict(source.settings[index].group) for source, index in rows]
    made = type(first)(module, targets_of(module), groups)
    made.steps = torch.stack([source.steps[:, index] for source, index in rows], 1)
    made.skipped = torch.stack([source.skipped[index] for source, index in rows])
    made.skipped_steps = torch.stack([source.skipped_steps[index] for source, index in rows])
    for slot, tensors in made.state.items():
        for position, tensor in enumerate(tensors):
            for row, (source, index) in enumerate(rows):
                tensor[row].copy_(source.state[slot][position][index])
    memos: list[dict[int, Any]] = [{} for _ in rows]
    for number in range(len(first.schedulers)):
        each = [
            carried_on(
                source.schedulers[number].each[index], source.settings[index], made.settings[row], memos[row]
            )
            for row, (source, index) in enumerate(rows)
        ]
        made.schedulers.append(TrialScheduler(made, each))
    return made
