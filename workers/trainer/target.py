"""Trains a target: the full-width model of one configuration, in its surrogates' parametrization."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tuning.core.study.actions import Member
from tuning.core.study.events import TargetCheckpointed, TargetEnded, TargetReported
from tuning.core.workload import FunctionWorkload, Workload
from workers.trainer import checkpoints
from workers.trainer.batches import load_data
from workers.trainer.compiling.stepping import compile_lazily
from workers.trainer.loading import load_workload
from workers.trainer.orders import Control, GoOn, Parted, Reporter, Stopped, TargetOrder
from workers.trainer.recipe import Recipe
from workers.trainer.solo import SoloEnsemble, describe_error

if TYPE_CHECKING:
    from workers.trainer.ranks.group import RankGroup

STOP = 2  # above a wish to pause, which is 1


def train_target(
    order: TargetOrder,
    reporter: Reporter,
    control: Control | None = None,
    workload: Workload | None = None,
) -> TargetEnded:
    """Train a target to its end, or until it is stopped; either way its weights so far are saved.

    `reporter` gets `TargetReported` (each epoch), `TargetCheckpointed` and `CompileDecided`. The model is a
    safetensors file with ordinary state-dict keys; the JSON file of the same name says what it is. A target
    that was stopped before its first epoch ended has no model.
    """
    workload = workload or load_workload(order.setting.workload, order.setting.parameters)
    if order.setting.threads:
        torch.set_num_threads(order.setting.threads)
    if isinstance(workload, FunctionWorkload):
        from workers.trainer.functions import run_function_target

        return run_function_target(order, reporter, control or GoOn(), workload)
    return _Run(order, reporter, control or GoOn(), workload).run()


class _Run:
    """One target, alone or as one of several ranks; of these the first evaluates, reports and writes."""

    def __init__(self, order: TargetOrder, reporter: Reporter, control: Control, workload: Workload) -> None:
        self.order, self.reporter, self.control, self.workload = order, reporter, control, workload
        self.started_s = time.perf_counter()
        self.folder = Path(order.setting.folder)
        self.group: RankGroup | None = None
        self.leads = order.seat is None or order.seat.rank == 0
        # with several devices there is more to lose, so nothing is saved on checkpoints
        overhead = checkpoints.MOST_OVERHEAD if order.seat is None else math.inf
        self.schedule = checkpoints.Schedule(order.setting.checkpoint_every, overhead)
        self.metrics: dict[str, float] = {}
        self.saved: dict[str, torch.Tensor] = {}
        self.epoch = 0

    def run(self) -> TargetEnded:
        """Train, and say how it ended; Parted where the other ranks are gone without a word."""
        ensemble = None
        try:
            ensemble = self._ensemble()
            return self._train(ensemble)
        except Parted:
            reason = self.group.told() if self.group is not None else None
            if reason is None:
                raise
            return TargetEnded(self.order.run, 0.0, "failed", reason=reason)
        except Exception as error:
            if self.group is not None:
                self.group.tell(describe_error(error))
            raise
        finally:
            if ensemble is not None:
                ensemble.close()

    def _ensemble(self) -> SoloEnsemble:
        order = self.order
        data = load_data(self.workload, order.config, order.setting.device)
        recipe = Recipe.of(self.workload, data, order.setting, target=True)
        member = Member(order.trial, dict(order.config), order.seed)
        if order.seat is None:
            return SoloEnsemble(recipe, [member], order.setting.data_seed)
        # only here: importing what ranks need takes a second
        from workers.trainer.ranks.ensemble import SharedEnsemble
        from workers.trainer.ranks.group import RankGroup

        self.group = RankGroup(order.seat, recipe.device)
        return SharedEnsemble(recipe, member, order.setting.data_seed, self.group)

    def _train(self, ensemble: SoloEnsemble) -> TargetEnded:
        order = self.order
        if order.checkpoint and not ensemble.failures:
            content = checkpoints.read(order.checkpoint)
            ensemble.load(content["trials"])
            self.epoch = self.schedule.last_epoch = int(content["epoch"])
            self.metrics = content["metrics"]
        compile_lazily(ensemble, order, order.epochs - self.epoch, self.reporter)
        try:
            while self.epoch < order.epochs:
                failures = ensemble.train_epoch(self.epoch + 1, self.control.stopped)
                if failures:
                    return TargetEnded(order.run, 0.0, "failed", reason=failures[order.trial])
                self.epoch += 1
                if self.leads:
                    self._take_stock(ensemble)
                if self.epoch < order.epochs and self._must_pause():
                    return self._pause(ensemble)
        except Stopped:
            return self._end("cut")
        if self.leads and not self.saved:
            self.saved = ensemble.weights(order.trial)
        return self._end("completed")

    def _take_stock(self, ensemble: SoloEnsemble) -> None:
        self.metrics = ensemble.evaluate()[self.order.trial]
        seat = self.order.seat
        seconds = (time.perf_counter() - self.started_s) * (seat.ranks if seat else 1)
        self.reporter(TargetReported(self.order.run, self.epoch, dict(self.metrics), seconds))
        if self.epoch < self.order.epochs and self.schedule.due(self.epoch):
            self._checkpoint(ensemble)
        # a stop comes between two batches, so what was evaluated last must be kept aside
        self.saved = {name: tensor.clone() for name, tensor in ensemble.weights(self.order.trial).items()}

    def _must_pause(self) -> bool:
        """Return what the driver wants between two epochs, on all ranks alike; may raise Stopped."""
        wish = 0
        if self.leads:
            try:
                wish = int(self.control.pending().pause)
            except Stopped:
                wish = STOP
        if self.group is not None:
            wish = self.group.largest(wish)
        if wish == STOP:
            raise Stopped
        return wish > 0

    def _pause(self, ensemble: SoloEnsemble) -> TargetEnded:
        if self.leads and self.schedule.last_epoch < self.epoch:
            self._checkpoint(ensemble)
        return self._end("paused")

    def _checkpoint(self, ensemble: SoloEnsemble) -> None:
        started = time.perf_counter()
        path = self.folder / f"{self.order.run}-{self.epoch}.pt"
        content: dict[str, Any] = {"epoch": self.epoch, "metrics": self.metrics, **ensemble.state()}
        text = checkpoints.write(path, content)
        self.schedule.written(self.epoch, time.perf_counter() - started)
        self.reporter(TargetCheckpointed(self.order.run, self.epoch, text))

    def _end(self, state: str) -> TargetEnded:
        order, name = self.order, self.workload.metric
        if not self.leads:
            return TargetEnded(order.run, 0.0, state)
        if name not in self.metrics and state == "completed":
            saw = ", ".join(sorted(self.metrics))
            return TargetEnded(order.run, 0.0, "failed", reason=f"metric `{name}` never reported; saw: {saw}")
        if not self.saved:
            return TargetEnded(order.run, 0.0, state, reason="stopped before its first epoch ended")
        card = {
            "workload": order.setting.workload,
            "parameters": dict(order.setting.parameters),
            "trial": order.trial,
            "config": dict(order.config),
            "epochs": self.epoch,
            "metrics": self.metrics,
            "parametrization": order.setting.parametrization if order.setting.scaling > 1 else "own",
            "state": state,
        }
        suffix = f"-{order.variant}" if order.variant else ""
        path = self.folder / f"target-{order.trial}{suffix}.safetensors"
        text = checkpoints.write_model(path, self.saved, card)
        return TargetEnded(order.run, 0.0, state, self.metrics.get(name), text)
