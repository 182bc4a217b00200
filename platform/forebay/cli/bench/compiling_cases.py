"""One target trained both ways, for `forebay bench compile`."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from forebay.cli.bench import report
from tuning.core.containers import break_even_steps
from tuning.core.study import Member
from tuning.core.workload import check_workload
from workers.trainer.batches import batch_bounds, load_data
from workers.trainer.clocks import compile_clock, step_clock
from workers.trainer.compiling.agreement import relative_distance
from workers.trainer.compiling.inductor import compiled_model
from workers.trainer.loading import load_workload
from workers.trainer.orders import Setting
from workers.trainer.recipe import Recipe
from workers.trainer.solo import Lone, SoloEnsemble

SCALING = 8  # a target has the parametrization of such surrogates
ALIKE = 20  # steps after which weights are compared


class Target:
    """One full-width model and its batches; `forward` is how its training steps run it."""

    def __init__(self, recipe: Recipe, config: dict[str, Any]) -> None:
        self.ensemble = SoloEnsemble(recipe, [Member(0, config, 1)], 0)
        if self.ensemble.failures:
            raise RuntimeError(self.ensemble.failures[0])
        self.lone: Lone = self.ensemble.lones[0]
        self.recipe, self.config = recipe, config
        self.forward: Callable[..., Any] = self.lone.model
        size = recipe.batch_size(config)
        bounds = batch_bounds(len(recipe.data.train), size, self.lone.fold_single)
        self.bounds = [bound for bound in bounds if bound[1] - bound[0] == size]
        self.made = 0

    def steps(self, count: int) -> None:
        """Make training steps, on one batch after the other."""
        self.lone.model.train()
        workload = self.recipe.workload
        for _ in range(count):
            inputs, targets = self.recipe.data.train.take(*self.bounds[self.made % len(self.bounds)])
            self.made += 1
            loss = workload.loss(self.forward(inputs), targets)
            self.lone.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.lone.optimizer.step()

    def compile(self) -> float:
        """Compile the model with its first step; return the seconds."""
        clock = compile_clock(self.recipe.device)
        begin_s = clock()
        self.forward = compiled_model(self.lone.model)
        self.steps(1)
        return clock() - begin_s

    def weights(self) -> list[Tensor | None]:
        """Return copies of the parameters."""
        return [parameter.detach().clone() for parameter in self.lone.model.parameters()]


def measure(
    name: str, device: str, batch: int | None, rounds: int, steps: int, folder: str
) -> dict[str, Any]:
    """Measure one workload's target; `steps` are made of each kind in a round."""
    workload = load_workload(name)
    config = check_workload(workload).sample(random.Random(0)) | ({"batch_size": batch} if batch else {})
    config["lr"] = 1e-3  # nothing diverges
    setting = Setting(name, folder, 0, device, scaling=SCALING)
    recipe = Recipe.of(workload, load_data(workload, config, device), setting, target=True)
    with _one_core(device), _kernels_in(folder):
        eager, compiled, twin = (Target(recipe, config) for _ in range(3))
        compile_s = compiled.compile()
        eager.steps(1)
        for target in (eager, compiled):
            target.steps(ALIKE - 1)
        apart = relative_distance(compiled.weights(), eager.weights())
        times = report.interleaved(
            {
                "eager": lambda: _timed(eager, steps),
                "compiled": lambda: _timed(compiled, steps),
            },
            rounds,
        )
        again_s = twin.compile()
    return _result(name, compiled, compile_s, again_s, times, apart)


def _timed(target: Target, steps: int) -> float:
    clock = step_clock(target.recipe.device)
    begin_s = clock()
    target.steps(steps)
    return (clock() - begin_s) / steps


def _result(
    name: str,
    target: Target,
    compile_s: float,
    again_s: float,
    times: dict[str, report.Times],
    apart: float,
) -> dict[str, Any]:
    eager_s, fast_s = times["eager"].median_s, times["compiled"].median_s
    steps = break_even_steps(eager_s, fast_s, compile_s)
    return {
        "workload": name,
        "batch_size": target.recipe.batch_size(target.config),
        "steps_per_epoch": len(target.bounds),
        "epochs": target.recipe.workload.epochs,
        "compile_s": compile_s,
        "compile_again_s": again_s,
        "eager_step_s": eager_s,
        "compiled_step_s": fast_s,
        "saved": 1 - fast_s / eager_s,
        "break_even_steps": steps,
        "break_even_epochs": None if steps is None else steps / len(target.bounds),
        "weights_apart": apart,
        "times": {kind: spent.as_dict() for kind, spent in times.items()},
    }


@contextmanager
def _one_core(device: str) -> Iterator[None]:
    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _kernels_in(folder: str) -> Iterator[None]:
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
        else:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
