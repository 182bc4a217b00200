"""Trials trained as one fused module: one batch in, one step, F models further."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuning.core import hydro
from tuning.core.errors import TuningError
from tuning.core.study.actions import Member
from workers.trainer.batches import has_batch_norm
from workers.trainer.compiling.stepping import Compilable, LazyStep, make_step
from workers.trainer.orders import Stopped
from workers.trainer.recipe import Recipe


def joined(arguments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one set of arguments for all trials: a value all share stays, others become a list per trial."""
    names = set(arguments[0])
    if any(set(other) != names for other in arguments):
        raise TuningError("trials with different optimizer or scheduler arguments cannot be fused")
    result: dict[str, Any] = {}
    for name in arguments[0]:
        values = [other[name] for other in arguments]
        result[name] = values[0] if all(value == values[0] for value in values) else values
    return result


class FusedEnsemble:
    """F trials of one shape in one module. Every trial trains as it would alone."""

    kind = "fused"

    def __init__(self, recipe: Recipe, members: Sequence[Member], data_seed: int) -> None:
        self.recipe, self.data_seed = recipe, data_seed
        self.lazy: LazyStep | None = None
        self.members = list(members)
        self.model = recipe.fused(self.members)
        self.fold_single = has_batch_norm(self.model.blueprint.template)
        kinds = [recipe.optimizer_of(member.config) for member in self.members]
        if len({kind for kind, _ in kinds}) > 1:
            raise TuningError("trials with different optimizers cannot be fused")
        self.optimizer = hydro.optimizer(kinds[0][0], self.model, **joined([kw for _, kw in kinds]))
        schedules = [recipe.scheduler_of(member.config) for member in self.members]
        found = [schedule for schedule in schedules if schedule is not None]
        if found and (len(found) < len(schedules) or len({kind for kind, _ in found}) > 1):
            raise TuningError("trials with different schedulers cannot be fused")
        if found:
            hydro.scheduler(found[0][0], self.optimizer, **joined([kw for _, kw in found]))

    @property
    def trials(self) -> list[int]:
        """The trials that are still training, in the order of the fused dimension."""
        return [member.trial for member in self.members]

    def train_epoch(self, epoch: int, stopped: Callable[[], bool]) -> dict[int, str]:
        """Train all trials for an epoch; return the reasons of those whose loss became non-finite."""
        self.model.train()
        total = torch.zeros(len(self.members), device=self.recipe.device)
        batch_size = self.recipe.batch_size(self.members[0].config)
        batches = self.recipe.data.training_batches(self.data_seed, epoch, batch_size, self.fold_single)
        for inputs, targets in batches:
            if stopped():
                raise Stopped
            total += self._step(inputs, targets)
        for scheduler in self.optimizer.schedulers:
            scheduler.step()
        failures = {
            member.trial: f"non-finite loss at epoch {epoch}"
            for member, loss in zip(self.members, total.tolist(), strict=True)
            if not math.isfinite(loss)
        }
        if failures:
            self.keep([trial for trial in self.trials if trial not in failures])
        return failures

    def _step(self, inputs: Any, targets: Any) -> Tensor:
        workload = self.recipe.workload

        def gradients(forward: Callable[..., Any]) -> Tensor:
            losses = hydro.losses(workload.loss, forward(inputs), targets)
            self.optimizer.zero_grad(set_to_none=True)
            hydro.backward(losses)
            result: Tensor = losses.detach()
            return result

        def update() -> None:
            if workload.clip_norm is not None:
                hydro.clip_grad_norm_(self.model, workload.clip_norm)
            self.optimizer.step()

        return make_step(self.lazy, self.model, inputs, gradients, update)

    def stepper(self, inputs: Any, targets: Any) -> Callable[[], None]:
        """Return a function that makes one training step on this batch, for measurements."""
        self.model.train()

        def step() -> None:
            self._step(inputs, targets)

        return step

    def compilable(self) -> Compilable | None:
        """Return the fused model, unless it draws from its trials' own streams, which a graph cannot hold."""
        if self.model.train().draws:
            return None
        size = self.recipe.batch_size(self.members[0].config)
        return Compilable(f"{len(self.members)} fused trials", self.model, size, self.fold_single)

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor that stays between steps."""
        yield from self.model.buffers()
        for parameter in self.model.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        for slot in self.optimizer.state.values():
            yield from slot

    @torch.no_grad()
    def evaluate(self) -> dict[int, dict[str, float]]:
        """Return the validation metrics of every trial."""
        workload = self.recipe.workload
        self.model.eval()
        names: list[str] = []
        sums: Tensor | None = None
        samples = 0
        for inputs, targets in self.recipe.data.validation_batches():
            outputs = self.model(inputs)
            losses = hydro.losses(workload.loss, outputs, targets)
            each = [workload.metrics(_slice(outputs, f), targets) for f in range(len(self.members))]
            names = ["loss", *each[0]]
            columns = [losses, *(_stack([m[name] for m in each], losses) for name in each[0])]
            table = torch.stack(columns) * len(targets)
            sums = table if sums is None else sums + table
            samples += len(targets)
        rows = (sums / samples).T.tolist() if sums is not None else []
        return {
            member.trial: workload.summarize(dict(zip(names, row, strict=True)))
            for member, row in zip(self.members, rows, strict=True)
        }

    def keep(self, trials: Sequence[int]) -> None:
        """Leave all but these trials behind; the others go on exactly as if they had been alone."""
        if not trials:
            self.members = []
            return
        self.lazy = None  # what was compiled was the model of them all
        indexes = [self.trials.index(trial) for trial in trials]
        self.model, self.optimizer = hydro.defuse(self.model, self.optimizer, indexes)
        self.members = [self.members[index] for index in indexes]

    def state(self) -> dict[str, Any]:
        """Return everything that training further needs, as tensors and plain values."""
        return {
            "kind": self.kind,
            "numbers": [member.trial for member in self.members],
            "container": hydro.container_state(self.model, self.optimizer),
        }

    def load(self, container: Mapping[str, Any]) -> None:
        """Continue from a saved container of these trials, in their order."""
        hydro.load_container_state(self.model, self.optimizer, container)

    def weights(self, trial: int) -> dict[str, Tensor]:
        """Return a trial's ordinary state dict."""
        return dict(hydro.extract(self.model, self.trials.index(trial)).state_dict())


def _slice(outputs: Any, index: int) -> Any:
    from torch.utils._pytree import tree_map

    return tree_map(lambda value: value[index] if isinstance(value, Tensor) else value, outputs)


def _stack(values: Sequence[Any], like: Tensor) -> Tensor:
    if all(isinstance(value, Tensor) for value in values):
        return torch.stack([value.to(like.dtype).reshape(()) for value in values])
    return torch.tensor([float(value) for value in values], dtype=like.dtype, device=like.device)
