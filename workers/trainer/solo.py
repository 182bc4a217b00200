"""Trials trained one after the other in one process: where fusing does not pay or is not possible."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tuning.core.study.actions import Member
from workers.trainer.batches import has_batch_norm
from workers.trainer.compiling.stepping import Compilable, LazyStep, make_step
from workers.trainer.memory_order import prefer_channels_last
from workers.trainer.orders import Parted, Stopped
from workers.trainer.recipe import Recipe


@dataclass
class Lone:
    """One trial's model, optimizer and scheduler."""

    member: Member
    model: nn.Module
    optimizer: Any
    scheduler: Any
    fold_single: bool
    noise: torch.Tensor
    """The state of the trial's own random stream (dropout): as if it had started at its seed, alone."""

    def state(self) -> dict[str, Any]:
        """Return everything that training it further needs."""
        return {
            "model": self.model.state_dict(),
            "optimizer": _state(self.optimizer),
            "scheduler": _state(self.scheduler) if self.scheduler is not None else None,
            "noise": self.noise,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.model.load_state_dict(state["model"])
        if self.scheduler is not None:
            _load(self.scheduler, state["scheduler"])
        _load(self.optimizer, state["optimizer"])
        self.noise = state["noise"]


def _state(stepper: Any) -> Any:
    """The state of one of our optimizers or schedulers, or of one of PyTorch's."""
    if hasattr(stepper, "state_tensors"):
        groups = [dict(group) for group in stepper.param_groups]
        return {"tensors": stepper.state_tensors(), "groups": groups}
    return stepper.state() if callable(getattr(stepper, "state", None)) else stepper.state_dict()


def _load(stepper: Any, state: Any) -> None:
    if hasattr(stepper, "load_state_tensors"):
        stepper.load_state_tensors(state["tensors"])
        for group, saved in zip(stepper.param_groups, state["groups"], strict=True):
            group.update(saved)
    elif hasattr(stepper, "load_state"):
        stepper.load_state(state)
    else:
        stepper.load_state_dict(state)


class SoloEnsemble:
    """Independent trials; a trial that raises or diverges is dropped and named by `train_epoch`."""

    kind = "solo"

    def __init__(self, recipe: Recipe, members: Sequence[Member], data_seed: int) -> None:
        self.recipe, self.data_seed = recipe, data_seed
        self.failures: dict[int, str] = {}
        self.lazy: LazyStep | None = None  # of the only trial
        self.lones: dict[int, Lone] = {}
        for member in members:
            try:
                self.lones[member.trial] = build_lone(recipe, member)
            except Exception as error:
                self.failures[member.trial] = describe_error(error)

    @property
    def trials(self) -> list[int]:
        """The trials that are still training."""
        return list(self.lones)

    def train_epoch(self, epoch: int, stopped: Callable[[], bool]) -> dict[int, str]:
        """Train every trial for an epoch; return the reasons of those that failed."""
        failures, self.failures = self.failures, {}
        for trial, lone in list(self.lones.items()):
            try:
                loss = self._train(lone, epoch, stopped)
            except (Stopped, Parted):
                raise
            except Exception as error:
                failures[trial] = describe_error(error)
            else:
                if not math.isfinite(loss):
                    failures[trial] = f"non-finite loss at epoch {epoch}"
        self.keep([trial for trial in self.lones if trial not in failures])
        return failures

    def _train(self, lone: Lone, epoch: int, stopped: Callable[[], bool]) -> float:
        config = lone.member.config
        lone.model.train()
        total = torch.zeros((), device=self.recipe.device)
        batch_size = self.recipe.batch_size(config)
        with random_stream(lone, self.recipe.device):
            batches = self.recipe.data.training_batches(self.data_seed, epoch, batch_size, lone.fold_single)
            for inputs, targets in batches:
                if stopped():
                    raise Stopped
                total += self._step(lone, inputs, targets)
        if lone.scheduler is not None:
            lone.scheduler.step()
        return float(total)

    def _step(self, lone: Lone, inputs: Any, targets: Any) -> torch.Tensor:
        def gradients(forward: Callable[..., Any]) -> torch.Tensor:
            loss: torch.Tensor = self.recipe.workload.loss(forward(inputs), targets)
            self._backward(lone, loss)
            return loss.detach()

        return make_step(self.lazy, lone.model, inputs, gradients, lambda: self._update(lone))

    def _backward(self, lone: Lone, loss: torch.Tensor) -> None:
        lone.optimizer.zero_grad(set_to_none=True)
        loss.backward()

    def _update(self, lone: Lone) -> None:
        clip_norm = self.recipe.workload.clip_norm
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(lone.model.parameters(), clip_norm)
        lone.optimizer.step()

    def stepper(self, inputs: Any, targets: Any) -> Callable[[], None]:
        """Return a function that makes one training step of the only trial, for measurements."""
        lone = next(iter(self.lones.values()))
        lone.model.train()

        def step() -> None:
            self._step(lone, inputs, targets)

        return step

    def compilable(self) -> Compilable | None:
        """Return the only trial's model; each of several would have to be compiled for itself."""
        if len(self.lones) != 1:
            return None
        (lone,) = self.lones.values()
        return Compilable("trial", lone.model, self.recipe.batch_size(lone.member.config), lone.fold_single)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield every tensor that stays between steps."""
        for lone in self.lones.values():
            yield from lone.model.buffers()
            for parameter in lone.model.parameters():
                yield parameter
                if parameter.grad is not None:
                    yield parameter.grad
            for slot in getattr(lone.optimizer, "state", {}).values():
                held = slot.values() if isinstance(slot, Mapping) else slot
                yield from (value for value in held if isinstance(value, torch.Tensor))

    def evaluate(self) -> dict[int, dict[str, float]]:
        """Return the validation metrics of every trial."""
        return {trial: self._evaluate(lone.model) for trial, lone in self.lones.items()}

    @torch.no_grad()
    def _evaluate(self, model: nn.Module) -> dict[str, float]:
        workload = self.recipe.workload
        model.eval()
        sums: dict[str, float] = {}
        samples = 0
        for inputs, targets in self.recipe.data.validation_batches():
            output = model(inputs)
            values = {"loss": workload.loss(output, targets), **workload.metrics(output, targets)}
            samples += len(targets)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(targets)
        return workload.summarize({name: value / samples for name, value in sums.items()})

    def close(self) -> None:
        """Let go of what is held outside this process: nothing, where trials train alone."""

    def keep(self, trials: Sequence[int]) -> None:
        """Leave all but these trials behind."""
        self.lones = {trial: self.lones[trial] for trial in trials}

    def state(self) -> dict[str, Any]:
        """Return the state of every trial, as `load` takes it."""
        return {"kind": self.kind, "trials": {trial: lone.state() for trial, lone in self.lones.items()}}

    def load(self, states: Mapping[int, Mapping[str, Any]]) -> None:
        """Continue every trial from its state."""
        for trial, lone in self.lones.items():
            lone.load(states[trial])

    def weights(self, trial: int) -> dict[str, torch.Tensor]:
        """Return a trial's ordinary state dict."""
        return dict(self.lones[trial].model.state_dict())


def build_lone(recipe: Recipe, member: Member) -> Lone:
    """Build one trial on its own."""
    model = recipe.model(member.config, member.seed)
    if recipe.device.type == "cpu" and recipe.scaling == 1:
        prefer_channels_last(model)
    optimizer, scheduler = steppers(recipe, member.config, model)
    noise = torch.Generator(recipe.device).manual_seed(member.seed).get_state()
    return Lone(member, model, optimizer, scheduler, has_batch_norm(model), noise)


def steppers(recipe: Recipe, config: Mapping[str, Any], model: nn.Module) -> tuple[Any, Any]:
    """Return the optimizer and the scheduler (or None) of one model.

    Ours where they exist, because they follow the width rules and spare every process two seconds of
    importing what PyTorch's own optimizers need; PyTorch's for the classes that we do not have.
    """
    from tuning.core import hydro

    kind, arguments = recipe.optimizer_of(config)
    schedule = recipe.scheduler_of(config)
    try:
        optimizer: Any = hydro.optimizer(kind, model, **arguments)
        scheduler = hydro.scheduler(schedule[0], optimizer, **schedule[1]) if schedule else None
    except hydro.FuseError:
        if recipe.parametrized:
            raise
        optimizer = kind(model.parameters(), **arguments)
        scheduler = schedule[0](optimizer, **schedule[1]) if schedule else None
    return optimizer, scheduler


@contextmanager
def random_stream(lone: Lone, device: torch.device) -> Iterator[None]:
    """Let PyTorch's global generator of the device be the trial's own, and keep where it got to."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        if cuda:
            torch.cuda.set_rng_state(lone.noise, device)
        else:
            torch.set_rng_state(lone.noise)
        yield
        lone.noise = torch.cuda.get_rng_state(device) if cuda else torch.get_rng_state()


def describe_error(error: BaseException) -> str:
    """Return one line about an exception: its kind and its message."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
