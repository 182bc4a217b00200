"""What runs of a study may compile, and what earlier runs of it found out about that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuning.core.containers import CompileRules
from tuning.core.study.actions import StartContainer, StartTarget
from tuning.core.study.lent import is_lent
from tuning.core.study.state import StudyState


@dataclass(frozen=True)
class CompileChance:
    """A run whose steps are certain may compile its model where that pays.

    `shape` is that of its trials, `known` what runs of this study found out (see `CompileDecided`), oldest
    first. `seconds_left` is the time until the study's deadline. `rules` replace those of the kind of device.
    """

    shape: str
    known: tuple[Mapping[str, Any], ...] = ()
    seconds_left: float | None = None
    rules: CompileRules | None = None


def compile_chance(
    state: StudyState, action: StartTarget | StartContainer, now_s: float
) -> CompileChance | None:
    """Return what a run may compile; None where its steps are not certain or nobody wants it.

    Certain are a target's steps, and those of a container of a study without rungs which nothing will repack:
    it has one trial, or there is no second device over which it could be split. Several devices that train a
    target together would each compile, and wait for the slowest. Devices that are lent for moments have no
    time to compile in.
    """
    if state.spec.compile == "off" or not state.facts.resumable or is_lent(action.device):
        return None
    if isinstance(action, StartContainer):
        movable = len(action.members) > 1 and len(state.devices) > 1
        if state.rungs or movable:
            return None
        shape = action.shape
    elif action.beside:
        return None
    else:
        shape = state.trials[action.trial].shape
    deadline_s = state.spec.deadline_s
    left_s = None if deadline_s is None else max(deadline_s - now_s, 0.0)
    return CompileChance(shape, tuple(state.compilations), left_s)


# two decisions that agree in these are about the same graph on the same kind of device
_SAME = ("model", "shape", "device", "torch", "threads")


def same_graph(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two decisions are about the same graph on the same kind of device."""
    return all(one.get(name) == other.get(name) for name in _SAME)


def remember_decision(state: StudyState, run: str, decision: Mapping[str, Any]) -> None:
    """Add a decision to the state.

    Of one graph the latest of each outcome stay, and the first that was measured: it found an empty cache.
    """
    entry = {**decision, "run": run}
    if entry in state.compilations:
        return
    firsts: list[Mapping[str, Any]] = []
    kept = []
    for old in state.compilations:
        measured = old.get("compile_s") is not None
        first = measured and not any(same_graph(old, one) for one in firsts)
        if first:
            firsts.append(old)
        if first or not same_graph(old, entry) or old["outcome"] != entry["outcome"]:
            kept.append(old)
    state.compilations = [*kept, entry]
