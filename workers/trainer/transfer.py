"""Looks at two widths before much is spent on one: the transfer report of a study.

Two questions. Do activations stay the same over widths while the model trains (the coordinate check)? And
do the same configurations, trained for a few steps at two surrogate widths, end in the same order?
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tuning.core.study.actions import Member
from tuning.core.study.events import TransferChecked
from tuning.core.study.transferring import RANK_STEPS
from tuning.core.transfer import spearman
from tuning.core.workload import FunctionWorkload, Workload
from workers.trainer.batches import load_data
from workers.trainer.fused import FusedEnsemble
from workers.trainer.loading import load_workload
from workers.trainer.orders import Control, GoOn, Setting, Stopped, TransferOrder
from workers.trainer.recipe import WIDTH_FAMILIES, Recipe
from workers.trainer.solo import SoloEnsemble, describe_error

Report = dict[str, Any]

EXAMPLES = 16  # BatchNorm needs more than a few samples to look alike at all widths
LEAST_WIDTH = 4  # the one below which surrogates are refused
LEAST_RANKED = 4  # below this a rank correlation says nothing
LEAST_CORRELATION = 0.5
_NO_MODEL = "a training function has no model() whose width could be changed"


def check_transfer(
    order: TransferOrder, control: Control | None = None, workload: Workload | None = None
) -> TransferChecked:
    """Make the report; what cannot be checked is part of it and says why. Only a stop ends it early."""
    workload = workload or load_workload(order.setting.workload, order.setting.parameters)
    if order.setting.threads:
        torch.set_num_threads(order.setting.threads)
    started = time.perf_counter()
    try:
        report = transfer_report(workload, order.setting, order.members, control or GoOn())
    except Stopped:
        report = {"verdict": "not possible", "reason": "it was stopped", "coordinate_check": "not possible"}
    return TransferChecked(order.run, 0.0, report, time.perf_counter() - started)


def transfer_report(
    workload: Workload, setting: Setting, members: Sequence[Member], control: Control
) -> Report:
    """Return `verdict` (passed, failed, not possible) with its `reason`, and what it rests on.

    `coordinate_check` with `coordinate_reason` and `layers` (slopes, and the points of a chart);
    `rank_correlation` with `ranking` (the metric of every member at both `rank_scalings`).
    """
    if isinstance(workload, FunctionWorkload):
        return {"verdict": "not possible", "reason": _NO_MODEL, "coordinate_check": "not possible"}
    coordinates = coordinate_report(workload, setting, members[0].config)
    ranking = _ranking(workload, setting, members, control)
    return {**_verdict(coordinates, ranking), **coordinates, **ranking}


def _verdict(coordinates: Report, ranking: Report) -> Report:
    correlation = ranking["rank_correlation"]
    alike = correlation is None or correlation >= LEAST_CORRELATION
    reasons = [coordinates["coordinate_reason"], ranking["rank_reason"]]
    reason = "; ".join(part for part in reasons if part)
    if coordinates["coordinate_check"] == "failed" or not alike:
        return {"verdict": "failed", "reason": reason}
    known = coordinates["coordinate_check"] == "passed"
    return {"verdict": "passed" if known else "not possible", "reason": reason}


def coordinate_report(workload: Workload, setting: Setting, config: Any) -> Report:
    """Run a coordinate check on the workload's own model, inputs and loss."""
    from tuning.core import hydro

    try:
        data = load_data(workload, config, "cpu")
        inputs, targets = data.train.take(0, min(EXAMPLES, len(data.train)))
        report = hydro.coordinate_check(
            workload.model(config),
            tuple(inputs) if isinstance(inputs, list) else inputs,
            scalings=sorted({1, max(setting.scaling // 2, 1), setting.scaling}),
            optimizer=WIDTH_FAMILIES[workload.optimizer(config)[0].__name__],
            parametrization=setting.parametrization,
            loss=lambda output: workload.loss(output, targets),
            min_width=LEAST_WIDTH,
        )
    except Exception as error:
        return {"coordinate_check": "not possible", "coordinate_reason": describe_error(error), "layers": []}
    verdict = "passed" if report.passed else "failed"
    return {"coordinate_check": verdict, "coordinate_reason": report.summary(), "layers": _layers(report)}


def _layers(report: Any) -> list[Report]:
    """One entry per layer: its slopes, and its activation over scaling at the start and after training."""
    last = max(row["step"] for row in report.rows)
    wrong = {*report.growing, *report.vanishing}
    return [
        {
            "layer": layer,
            "slope": _finite(slope),
            "start_slope": _finite(report.start_slopes[layer]),
            "passed": layer not in wrong,
            "scalings": [row["scaling"] for row in report.rows if (row["layer"], row["step"]) == (layer, 0)],
            "start": [_finite(row["l1"]) for row in report.rows if (row["layer"], row["step"]) == (layer, 0)],
            "change": [
                _finite(row["change"]) for row in report.rows if (row["layer"], row["step"]) == (layer, last)
            ],
        }
        for layer, slope in report.slopes.items()
    ]


def _ranking(workload: Workload, setting: Setting, members: Sequence[Member], control: Control) -> Report:
    """Train the members at the surrogate's width and at twice that width, and compare the two orders."""
    scalings = [setting.scaling, max(setting.scaling // 2, 1)]
    nothing: Report = {"rank_correlation": None, "rank_scalings": scalings, "ranking": [], "metric": ""}
    if len(members) < LEAST_RANKED:
        return {**nothing, "rank_reason": f"{len(members)} configurations are too few to rank"}
    try:
        narrow, wide = (_metrics(workload, setting, scaling, members, control) for scaling in scalings)
    except Stopped:
        raise
    except Exception as error:
        return {**nothing, "rank_reason": f"configurations were not ranked ({describe_error(error)})"}
    rows = [{"trial": m.trial, "narrow": narrow[m.trial], "wide": wide[m.trial]} for m in members]
    pairs = [(narrow[m.trial], wide[m.trial]) for m in members]
    finite = [(one, other) for one, other in pairs if one is not None and other is not None]
    correlation = spearman([one for one, _ in finite], [other for _, other in finite])
    ranked = {**nothing, "ranking": rows, "metric": workload.metric, "rank_steps": RANK_STEPS}
    if correlation is None or len(finite) < LEAST_RANKED:
        return {**ranked, "rank_reason": "too few configurations differ to be ranked"}
    alike = "alike" if correlation >= LEAST_CORRELATION else "differently"
    reason = (
        f"{len(finite)} configurations rank {alike} at 1/{scalings[0]} and 1/{scalings[1]} of the width "
        f"(Spearman {correlation:.2f})"
    )
    return {**ranked, "rank_correlation": correlation, "rank_reason": reason}


def _metrics(
    workload: Workload, setting: Setting, scaling: int, members: Sequence[Member], control: Control
) -> dict[int, float | None]:
    """Return the validation metric of every member after a few steps at one width."""
    data = load_data(workload, members[0].config, setting.device)
    # Width 1 still has the parametrization of its surrogates, as a target has.
    recipe = replace(Recipe.of(workload, data, setting), scaling=scaling)
    values: dict[int, float | None] = {}
    for group in _groups(recipe, members):
        ensemble = _ensemble(recipe, group, setting.data_seed)
        size = recipe.batch_size(group[0].config)
        done = 0
        for epoch in range(1, RANK_STEPS + 1):
            for inputs, targets in data.training_batches(setting.data_seed, epoch, size, fold_single=True):
                if done == RANK_STEPS:
                    break
                if control.stopped():
                    raise Stopped
                ensemble.stepper(inputs, targets)()
                done += 1
        found = ensemble.evaluate()
        values |= {m.trial: _finite(found.get(m.trial, {}).get(workload.metric)) for m in group}
    return values


def _groups(recipe: Recipe, members: Sequence[Member]) -> list[Sequence[Member]]:
    """All members together where they can be fused, one by one otherwise."""
    try:
        recipe.fused(members)
    except Exception:
        return [[member] for member in members]
    return [members]


def _ensemble(recipe: Recipe, members: Sequence[Member], data_seed: int) -> FusedEnsemble | SoloEnsemble:
    if len(members) > 1:
        return FusedEnsemble(recipe, members, data_seed)
    return SoloEnsemble(recipe, members, data_seed)


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
