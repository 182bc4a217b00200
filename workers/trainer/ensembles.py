"""Builds the trials of a container: fused where possible, from scratch or from their checkpoints."""

from typing import TYPE_CHECKING, Any

from workers.trainer import checkpoints
from workers.trainer.orders import ContainerOrder
from workers.trainer.recipe import Recipe
from workers.trainer.solo import SoloEnsemble, describe_error

if TYPE_CHECKING:
    from workers.trainer.fused import FusedEnsemble

    Built = tuple[SoloEnsemble | FusedEnsemble, str | None]


def build_ensemble(recipe: Recipe, order: ContainerOrder) -> "Built":
    """Return the container's trials, ready to train, and a note where they could not be fused as asked.

    A checkpoint that was written fused continues fused, and one that was not continues one by one.
    """
    contents = _read_checkpoints(order)
    if contents:
        solo = any(content["kind"] == "solo" for content in contents.values())
        return (_resume_solo if solo else _resume_fused)(recipe, order, contents), None
    if not order.fused:
        return SoloEnsemble(recipe, order.members, order.setting.data_seed), None
    try:
        return fused_ensemble(recipe, order), None
    except Exception as error:
        reason = describe_error(error)
    note = f"{len(order.members)} trials were trained one by one: {reason}"
    return SoloEnsemble(recipe, order.members, order.setting.data_seed), note


def fused_ensemble(recipe: Recipe, order: ContainerOrder) -> "FusedEnsemble":
    """Return the members of an order, fused, from scratch."""
    from workers.trainer.fused import FusedEnsemble

    return FusedEnsemble(recipe, order.members, order.setting.data_seed)


def _read_checkpoints(order: ContainerOrder) -> dict[str, dict[str, Any]]:
    if not order.from_epoch:
        return {}
    paths = dict.fromkeys(str(member.checkpoint) for member in order.members)
    return {path: checkpoints.read(path) for path in paths}


def _resume_solo(recipe: Recipe, order: ContainerOrder, contents: dict[str, dict[str, Any]]) -> SoloEnsemble:
    ensemble = SoloEnsemble(recipe, order.members, order.setting.data_seed)
    states = {m.trial: contents[str(m.checkpoint)]["trials"][m.trial] for m in order.members}
    ensemble.load(states)
    return ensemble


def _resume_fused(
    recipe: Recipe, order: ContainerOrder, contents: dict[str, dict[str, Any]]
) -> "FusedEnsemble":
    """Build the members anew and let them go on from what their files say, whoever they were with."""
    from tuning.core import hydro
    from workers.trainer.fused import FusedEnsemble

    parts, members = [], []
    for path, content in contents.items():
        mine = [member for member in order.members if str(member.checkpoint) == path]
        rows = [content["numbers"].index(member.trial) for member in mine]
        parts.append(hydro.select_trials(content["container"], rows))
        members += mine
    ensemble = FusedEnsemble(recipe, members, order.setting.data_seed)
    ensemble.load(hydro.join_states(parts))
    return ensemble
