"""Trains a target: the full-width model of one configuration, in its surrogates' parametrization."""

import time
from pathlib import Path
from typing import Any

import torch

from tuning.core.study.actions import Member
from tuning.core.study.events import TargetCheckpointed, TargetEnded, TargetReported
from tuning.core.workload import FunctionWorkload, Workload
from workers.trainer import checkpoints
from workers.trainer.batches import load_data
from workers.trainer.compiling.stepping import compile_lazily
from workers.trainer.loading import load_workload
from workers.trainer.orders import Control, GoOn, Reporter, Stopped, TargetOrder
from workers.trainer.recipe import Recipe
from workers.trainer.solo import SoloEnsemble


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
    def __init__(self, order: TargetOrder, reporter: Reporter, control: Control, workload: Workload) -> None:
        self.order, self.reporter, self.control, self.workload = order, reporter, control, workload
        self.started_s = time.perf_counter()
        self.folder = Path(order.setting.folder)
        self.schedule = checkpoints.Schedule(order.setting.checkpoint_every)
        self.metrics: dict[str, float] = {}
        self.epoch = 0

    def run(self) -> TargetEnded:
        """Train, and say how it ended."""
        order = self.order
        data = load_data(self.workload, order.config, order.setting.device)
        recipe = Recipe.of(self.workload, data, order.setting, target=True)
        member = Member(order.trial, dict(order.config), order.seed)
        ensemble = SoloEnsemble(recipe, [member], order.setting.data_seed)
        if order.checkpoint and not ensemble.failures:
            content = checkpoints.read(order.checkpoint)
            ensemble.load(content["trials"])
            self.epoch = self.schedule.last_epoch = int(content["epoch"])
            self.metrics = content["metrics"]
        compile_lazily(ensemble, order, order.epochs - self.epoch, self.reporter)
        saved: dict[str, torch.Tensor] = {}
        try:
            while self.epoch < order.epochs:
                failures = ensemble.train_epoch(self.epoch + 1, self.control.stopped)
                if failures:
                    return TargetEnded(order.run, 0.0, "failed", reason=failures[order.trial])
                self.epoch += 1
                self.metrics = ensemble.evaluate()[order.trial]
                self._report()
                if self.epoch < order.epochs:
                    self._checkpoint(ensemble)
                # a stop comes between two batches, so what was evaluated last must be kept aside
                saved = {name: tensor.clone() for name, tensor in ensemble.weights(order.trial).items()}
        except Stopped:
            return self._end(saved, "cut")
        return self._end(saved or ensemble.weights(order.trial), "completed")

    def _report(self) -> None:
        seconds = time.perf_counter() - self.started_s
        self.reporter(TargetReported(self.order.run, self.epoch, dict(self.metrics), seconds))

    def _checkpoint(self, ensemble: SoloEnsemble) -> None:
        if not self.schedule.due(self.epoch):
            return
        started = time.perf_counter()
        path = self.folder / f"{self.order.run}-{self.epoch}.pt"
        content: dict[str, Any] = {"epoch": self.epoch, "metrics": self.metrics, **ensemble.state()}
        text = checkpoints.write(path, content)
        self.schedule.written(self.epoch, time.perf_counter() - started)
        self.reporter(TargetCheckpointed(self.order.run, self.epoch, text))

    def _end(self, tensors: dict[str, torch.Tensor], state: str) -> TargetEnded:
        order, name = self.order, self.workload.metric
        if name not in self.metrics and state == "completed":
            saw = ", ".join(sorted(self.metrics))
            return TargetEnded(order.run, 0.0, "failed", reason=f"metric `{name}` never reported; saw: {saw}")
        if not tensors:
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
        text = checkpoints.write_model(path, tensors, card)
        return TargetEnded(order.run, 0.0, state, self.metrics.get(name), text)
