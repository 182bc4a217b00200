"""A container on disk: tensors and plain values only, with the trials leading every shape.

``torch.load(path, weights_only=True)`` reads it, and ``select_trials`` and ``join_states`` cut and paste it
without the model, so that a lost device's trials can go on in containers of any size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.fused_module import FusedModule
from tuning.core.hydro.optimizers.trial_optimizer import TrialOptimizer

FORMAT = 1


def container_state(fused: FusedModule, optimizer: TrialOptimizer | None = None) -> dict[str, Any]:
    """Everything that a container needs to go on: weights, buffers, random streams, optimizer, schedules."""
    shared = fused.blueprint.shared_names
    trials = fused.trials
    tensors = {
        name: tensor.detach().expand(trials, *tensor.shape).clone()
        if name in shared
        else tensor.detach().clone()
        for name, tensor in fused.tensors().items()
    }
    state: dict[str, Any] = {
        "format": FORMAT,
        "trials": trials,
        "tensors": {name: tensor.contiguous() for name, tensor in tensors.items()},
        "seeds": torch.tensor(fused.seeds, dtype=torch.int64),
        "streams": fused.streams.states(),
    }
    if optimizer is not None:
        state["optimizer"] = optimizer.state_tensors()
        state["groups"] = [dict(group) for group in optimizer.param_groups]
        schedules = [scheduler.state() for scheduler in optimizer.schedulers]
        state["schedules"] = [[rows[trial] for rows in schedules] for trial in range(trials)]
    return state


def load_container_state(fused: FusedModule, optimizer: TrialOptimizer | None, state: dict[str, Any]) -> None:
    """Let a container and its optimizer, with its schedulers in place, go on from a saved state.

    The container has to hold as many trials of the same model as the state. Raises ``FuseError`` otherwise.
    """
    _check(fused, optimizer, state)
    shared = fused.blueprint.shared_names
    with torch.no_grad():
        for name, tensor in fused.tensors().items():
            saved = state["tensors"][name]
            if name in shared and not bool((saved == saved[:1]).all()):
                raise FuseError(f"buffer {name} differs between the saved trials and is one for all here")
            tensor.copy_(saved[0] if name in shared else saved)
    fused.streams.restore(state["seeds"].tolist(), state["streams"])
    if optimizer is None:
        return
    optimizer.load_state_tensors(state["optimizer"])
    for number, scheduler in enumerate(optimizer.schedulers):
        scheduler.load_state([rows[number] for rows in state["schedules"]])
    for group, saved in zip(optimizer.param_groups, state["groups"], strict=True):
        group.update({key: tuple(v) if isinstance(v, list) else v for key, v in saved.items()})


def select_trials(state: dict[str, Any], keep: Sequence[int]) -> dict[str, Any]:
    """The saved state of some trials of a saved container."""
    rows = torch.tensor(list(keep), dtype=torch.int64)
    if len(rows) == 0 or int(rows.min()) < 0 or int(rows.max()) >= state["trials"]:
        raise FuseError(f"keep holds trials that are not among the {state['trials']} saved ones")
    picked: dict[str, Any] = {"format": FORMAT, "trials": len(rows)}
    for key, value in state.items():
        if isinstance(value, Tensor):
            picked[key] = value[rows]
        elif isinstance(value, dict):
            picked[key] = {name: tensor[rows] for name, tensor in value.items()}
        elif isinstance(value, list):
            picked[key] = [value[row] for row in keep]
    return picked


def join_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The saved state of a container that holds the trials of several saved ones."""
    if not states:
        raise FuseError("there is no state to join")
    first = states[0]
    whole: dict[str, Any] = {"format": FORMAT, "trials": sum(state["trials"] for state in states)}
    for key, value in first.items():
        if any(key not in state for state in states):
            raise FuseError(f"{key!r} is missing in some of the saved states")
        if isinstance(value, Tensor):
            whole[key] = torch.cat([state[key] for state in states])
        elif isinstance(value, dict):
            if any(state[key].keys() != value.keys() for state in states):
                raise FuseError(f"the saved states hold different {key}: join states of one model only")
            whole[key] = {name: torch.cat([state[key][name] for state in states]) for name in value}
        elif isinstance(value, list):
            whole[key] = [row for state in states for row in state[key]]
    return whole


def _check(fused: FusedModule, optimizer: TrialOptimizer | None, state: dict[str, Any]) -> None:
    if state.get("format") != FORMAT:
        raise FuseError(f"this is no container state of format {FORMAT}")
    if state["trials"] != fused.trials:
        raise FuseError(f"a state of {state['trials']} trials does not fit a container of {fused.trials}")
    own, saved = fused.tensors(), state["tensors"]
    if own.keys() != saved.keys():
        odd = sorted(own.keys() ^ saved.keys())[0]
        raise FuseError(f"{odd} is only in the model or only in the state: load it into the same model")
    if optimizer is not None:
        if "optimizer" not in state:
            raise FuseError("the state was saved without an optimizer")
        if any(len(rows) != len(optimizer.schedulers) for rows in state["schedules"]):
            raise FuseError("the state has another number of schedulers: make them before loading")
