"""Builds what stands behind a training function's prepared objects."""

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from workers.trainer.draws import record_draws
from workers.trainer.recipe import TEMPLATE_SEED, Template
from workers.trainer.session import Session


def bind_session(session: Session, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Make the model (surrogate, fused), the optimizer and the schedulers of a session."""
    prepared = session.models[0]
    example = _example(args, kwargs)
    template = _template(session, prepared.template, example)
    seeds = [member.seed for member in session.members]
    weights = [template.weights(seed) if template.draws is not None else {} for seed in seeds]
    if len(seeds) > 1:
        inner = template.container(weights, seeds, example, session.device)
    else:
        inner = copy.deepcopy(template.module)
        parameters = dict(inner.named_parameters())
        with torch.no_grad():
            for name, tensor in weights[0].items():
                parameters[name].copy_(tensor)
        torch.manual_seed(seeds[0])
    prepared.inner = inner.to(session.device).train(prepared.training)
    _bind_optimizer(session, prepared.inner)


def _example(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    first = tree_map(lambda v: v[:2].detach() if isinstance(v, torch.Tensor) else v, (args, dict(kwargs)))
    if first[1]:
        return first[1]
    return first[0] if len(first[0]) != 1 else first[0][0]


def _template(session: Session, model: nn.Module, example: Any) -> Template:
    """The surrogate and its draws; at full width the function's own model: all trials start with it."""
    if session.scaling == 1:
        return Template(model, None)
    from tuning.core import hydro

    def build() -> nn.Module:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore", hydro.HydroWarning)
            torch.manual_seed(TEMPLATE_SEED)
            surrogate: nn.Module = hydro.shrink(
                model,
                example,
                scaling=session.scaling,
                optimizer=session.family(),
                parametrization=session.parametrization,
            )
        return surrogate

    return Template(*record_draws(build))


def _bind_optimizer(session: Session, model: nn.Module) -> None:
    from tuning.core import hydro

    prepared = session.optimizers[0]
    try:
        prepared.inner = hydro.optimizer(prepared.kind, model, **prepared.arguments)
        for scheduler in session.schedulers:
            scheduler.inner = hydro.scheduler(scheduler.kind, prepared.inner, **scheduler.arguments)
    except hydro.FuseError:
        if session.scaling > 1 or session.fused:
            raise
        prepared.inner = prepared.kind(model.parameters(), **prepared.arguments)
        for scheduler in session.schedulers:
            scheduler.inner = scheduler.kind(prepared.inner, **scheduler.arguments)
