"""Runs one container: trains its trials epoch by epoch, reports, obeys verdicts, writes checkpoints.

Sample order depends on (data seed, epoch) only and a trial's initialisation and noise on its own seed, so a
trial's results do not depend on the container, the device or the neighbours it happened to have.
"""

import math
import time
from pathlib import Path
from typing import Any, Protocol

import torch

from tuning.core.study.events import Checkpointed, ContainerEnded, ModelSaved, Reported, TrialFailed
from tuning.core.workload import FunctionWorkload, Workload
from workers.trainer import checkpoints
from workers.trainer.batches import load_data
from workers.trainer.compiling.stepping import compile_lazily
from workers.trainer.ensembles import build_ensemble
from workers.trainer.loading import load_workload
from workers.trainer.orders import ContainerOrder, Control, GoOn, Reporter, Stopped, Verdict
from workers.trainer.recipe import Recipe


class Ensemble(Protocol):
    """Trials that train together; see `SoloEnsemble` and `FusedEnsemble`."""

    @property
    def trials(self) -> list[int]: ...
    def train_epoch(self, epoch: int, stopped: Any) -> dict[int, str]: ...
    def evaluate(self) -> dict[int, dict[str, float]]: ...
    def keep(self, trials: list[int]) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def weights(self, trial: int) -> dict[str, torch.Tensor]: ...


def run_container(
    order: ContainerOrder,
    reporter: Reporter,
    control: Control | None = None,
    workload: Workload | None = None,
) -> ContainerEnded:
    """Run a container to its end and return how it ended (`at_s` is for the driver to fill in).

    `reporter` gets `TrialFailed`, `Reported` (each epoch), `Checkpointed`, `CompileDecided` and `ModelSaved`,
    in the order in which they happen; what it was given is durable. Only an error that concerns all trials
    alike is raised.
    """
    workload = workload or load_workload(order.setting.workload, order.setting.parameters)
    if order.setting.threads:
        torch.set_num_threads(order.setting.threads)
    if isinstance(workload, FunctionWorkload):
        from workers.trainer.functions import run_function_container

        return run_function_container(order, reporter, control or GoOn(), workload)
    return _Run(order, reporter, control or GoOn(), workload).run()


class _Run:
    def __init__(
        self, order: ContainerOrder, reporter: Reporter, control: Control, workload: Workload
    ) -> None:
        self.order, self.reporter, self.control, self.workload = order, reporter, control, workload
        self.started_s = time.perf_counter()
        self.charged_s = 0.0
        self.spent: dict[int, float] = {member.trial: 0.0 for member in order.members}
        self.repacking_s = 0.0
        self.folder = Path(order.setting.folder)
        self.schedule = checkpoints.Schedule(order.setting.checkpoint_every)
        self.schedule.last_epoch = order.from_epoch

    def run(self) -> ContainerEnded:
        """Build the trials, train them, and say how it ended."""
        order = self.order
        data = load_data(self.workload, order.members[0].config, order.setting.device)
        recipe = Recipe.of(self.workload, data, order.setting)
        ensemble, note = build_ensemble(recipe, order)
        if order.from_epoch:
            self.repacking_s += time.perf_counter() - self.started_s
        compile_lazily(ensemble, order, order.until_epoch - order.from_epoch, self.reporter)
        epoch = order.from_epoch

        def ended(outcome: str, epoch: int, path: str | None = None) -> ContainerEnded:
            return ContainerEnded(order.run, 0.0, outcome, epoch, path, self.repacking_s, note)

        try:
            while epoch < order.until_epoch and (ensemble.trials or epoch == order.from_epoch):
                epoch += 1
                path = self._epoch(ensemble, epoch)
                if path:
                    return ended("paused", epoch, path)
        except Stopped:
            if order.keep_models:
                self._save_best(ensemble)
            return ended("stopped", epoch - 1)
        return ended("finished" if epoch >= order.until_epoch else "stopped", epoch)

    def _epoch(self, ensemble: Ensemble, epoch: int) -> str | None:
        """Train and report one epoch; return the path of a checkpoint where the container must pause."""
        failures = ensemble.train_epoch(epoch, self.control.stopped)
        for trial, reason in failures.items():
            self.reporter(TrialFailed(self.order.run, trial, reason))
        if not ensemble.trials:
            return None
        metrics = ensemble.evaluate()
        self._require_metric(ensemble, metrics)
        self._charge(ensemble.trials)
        last = epoch >= self.order.until_epoch
        if last and self.order.keep_models:
            self._save_models(ensemble, metrics)
        self.reporter(Reported(self.order.run, epoch, metrics, dict(self.spent)))
        if last or not ensemble.trials:
            return None
        verdict = self.control.verdict(epoch) if epoch in self.order.rungs else self.control.pending()
        return self._obey(ensemble, epoch, verdict)

    def _require_metric(self, ensemble: Ensemble, metrics: dict[int, dict[str, float]]) -> None:
        name = self.workload.metric
        for trial in [trial for trial in metrics if name not in metrics[trial]]:
            saw = ", ".join(sorted(metrics.pop(trial)))
            self.reporter(TrialFailed(self.order.run, trial, f"metric `{name}` never reported; saw: {saw}"))
        if len(metrics) < len(ensemble.trials):
            ensemble.keep(list(metrics))

    def _charge(self, trials: list[int]) -> None:
        """Share the wall time since the last charge among the trials that used it."""
        now = time.perf_counter() - self.started_s
        for trial in trials:
            self.spent[trial] += (now - self.charged_s) / len(trials)
        self.charged_s = now

    def _obey(self, ensemble: Ensemble, epoch: int, verdict: Verdict) -> str | None:
        stop = set(verdict.stop) & set(ensemble.trials)
        # waiting for a verdict is nobody's device time
        self.charged_s = time.perf_counter() - self.started_s
        started = time.perf_counter()
        if stop:
            ensemble.keep([trial for trial in ensemble.trials if trial not in stop])
        if not ensemble.trials:
            return None
        path = None
        if verdict.pause or self.schedule.due(epoch):
            path = self._checkpoint(ensemble, epoch)
        if stop or verdict.pause:
            self.repacking_s += time.perf_counter() - started
        if path and not verdict.pause:
            self.reporter(Checkpointed(self.order.run, epoch, path))
        return path if verdict.pause else None

    def _checkpoint(self, ensemble: Ensemble, epoch: int) -> str:
        started = time.perf_counter()
        path = self.folder / f"{self.order.run}-{epoch}.pt"
        text = checkpoints.write(path, {"epoch": epoch, **ensemble.state()})
        self.schedule.written(epoch, time.perf_counter() - started)
        return text

    def _save_best(self, ensemble: Ensemble) -> None:
        """A full model that was cut is still a model: keep the best one of this container."""
        metrics = ensemble.evaluate()
        name, sign = self.workload.metric, -1.0 if self.workload.mode == "max" else 1.0
        finite = [trial for trial in metrics if math.isfinite(metrics[trial].get(name, math.nan))]
        if finite:
            best = min(finite, key=lambda trial: (sign * metrics[trial][name], trial))
            ensemble.keep([best])
            self._save_models(ensemble, metrics)

    def _save_models(self, ensemble: Ensemble, metrics: dict[int, dict[str, float]]) -> None:
        configs = {member.trial: member.config for member in self.order.members}
        for trial in ensemble.trials:
            card = {
                "workload": self.order.setting.workload,
                "parameters": dict(self.order.setting.parameters),
                "trial": trial,
                "config": configs[trial],
                "metrics": metrics[trial],
            }
            path = self.folder / f"trial-{trial}.safetensors"
            text = checkpoints.write_model(path, ensemble.weights(trial), card)
            self.reporter(ModelSaved(self.order.run, trial, text))
