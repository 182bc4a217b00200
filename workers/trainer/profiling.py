"""Measures shapes: seconds of a training step and bytes, for a few numbers of fused trials.

Every shape trains throw-away models for a handful of steps. Memory is what the step holds: parameters,
gradients, optimizer state and what autograd keeps; on CUDA the allocator's own peak. Shapes that differ in
their batch size only share the models they are measured with. Probing ends where it would cost more than
`MOST_SHARE` of the work it is for, and where larger containers stop being faster.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from tuning.core.containers import PROBED_SIZES, ShapeProfile
from tuning.core.study.actions import Member
from tuning.core.study.events import Profiled
from tuning.core.workload import FunctionWorkload, Workload
from workers.trainer.batches import batch_bounds, load_data
from workers.trainer.clocks import step_clock
from workers.trainer.fused import FusedEnsemble
from workers.trainer.loading import load_workload
from workers.trainer.memory import free_bytes, measure_bytes
from workers.trainer.orders import ProfileOrder
from workers.trainer.recipe import Recipe, Template
from workers.trainer.solo import SoloEnsemble, describe_error

STEPS = 3  # the first warms up (and is the one whose memory is measured), the fastest of the others counts
MOST_SHARE = 0.02
IMPROVEMENT = 0.9  # a larger size is tried only where the last one brought the seconds per trial below this
ALWAYS = 8  # sizes up to this one are tried whatever the smaller ones say: two trials tell little


def run_profile(order: ProfileOrder, workload: Workload | None = None) -> Profiled:
    """Measure every shape of the order and return what was found."""
    workload = workload or load_workload(order.setting.workload, order.setting.parameters)
    if order.setting.threads:
        torch.set_num_threads(order.setting.threads)
    started = time.perf_counter()
    profiles: list[dict[str, Any]] = []
    targets: dict[str, TargetStep] = {}
    if not isinstance(workload, FunctionWorkload):
        prober = _Prober(workload, order)
        for shape, config in order.shapes.items():
            profiles.append(prober.profile(shape, config).to_json())
            if order.full_width:
                targets[shape] = prober.target_step(config)
    return Profiled(
        order.run,
        0.0,
        tuple(profiles),
        time.perf_counter() - started,
        {shape: step.whole_s for shape, step in targets.items()},
        {shape: step.half_s for shape, step in targets.items()},
        {shape: step.gradient_bytes for shape, step in targets.items()},
    )


class TargetStep(NamedTuple):
    """A step of the full model: seconds on a whole batch and on half of one, bytes of its gradients."""

    whole_s: float
    half_s: float
    gradient_bytes: int


class _Prober:
    def __init__(self, workload: Workload, order: ProfileOrder) -> None:
        self.workload, self.order = workload, order
        self.fused: list[tuple[Template, int, FusedEnsemble]] = []

    def profile(self, shape: str, config: Mapping[str, Any]) -> ShapeProfile:
        """Measure one shape."""
        recipe = self._recipe(config)
        batch_size = recipe.batch_size(config)
        steps = len(batch_bounds(len(recipe.data.train), batch_size, fold_single=False))
        batch = recipe.data.train.take(0, min(batch_size, len(recipe.data.train)))
        alone = SoloEnsemble(recipe, [Member(0, dict(config), 0)], 0)
        if alone.failures:
            broken = alone.failures[0]
            return ShapeProfile(shape, batch_size, steps, {1: 1e-3}, fusable=False, reason=broken)
        held, step_s = {}, {}
        held[1], step_s[1] = self._measure(alone.tensors, alone.stepper(*batch), recipe.device)
        reason: str | None = None
        allowed_s = MOST_SHARE * self.order.trials[shape] * self.order.epochs * steps * step_s[1]
        try:
            for size in self._sizes(shape):
                if not _worth_trying(step_s, size, allowed_s):
                    break
                fused = self._ensemble(recipe, config, size)
                held[size], step_s[size] = self._measure(fused.tensors, fused.stepper(*batch), recipe.device)
        except Exception as error:
            reason = describe_error(error)
        free = free_bytes(recipe.device)
        return ShapeProfile(
            shape, batch_size, steps, monotone(step_s), held, free, fusable=reason is None, reason=reason
        )

    def target_step(self, config: Mapping[str, Any]) -> TargetStep:
        """Measure a step of the full-width model; all zero where it cannot be built."""
        recipe = replace(self._recipe(config), scaling=1)
        alone = SoloEnsemble(recipe, [Member(0, dict(config), 0)], 0)
        if alone.failures:
            return TargetStep(0.0, 0.0, 0)
        batch_size = min(recipe.batch_size(config), len(recipe.data.train))

        def measure(size: int, steps: int) -> float:
            return _fastest_s(alone.stepper(*recipe.data.train.take(0, size)), steps, recipe.device)

        whole_s = half_s = measure(batch_size, STEPS)
        with contextlib.suppress(Exception):  # what cannot take half a batch gains nothing from two devices
            half_s = measure(max(batch_size // 2, 1), STEPS - 1)  # warm from the whole ones
        model = alone.lones[0].model
        gradients = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        return TargetStep(whole_s, half_s, gradients)

    def _recipe(self, config: Mapping[str, Any]) -> Recipe:
        data = load_data(self.workload, config, self.order.setting.device)
        return Recipe.of(self.workload, data, self.order.setting)

    def _sizes(self, shape: str) -> list[int]:
        return [size for size in PROBED_SIZES if 1 < size <= max(2, self.order.trials[shape])]

    def _ensemble(self, recipe: Recipe, config: Mapping[str, Any], size: int) -> FusedEnsemble:
        template = recipe.template(config)
        for known, trials, ensemble in self.fused:
            if known is template and trials == size:
                return ensemble
        members = [Member(index, dict(config), 0) for index in range(size)]  # all equal: drawn once
        ensemble = FusedEnsemble(recipe, members, 0)
        self.fused.append((template, size, ensemble))
        return ensemble

    def _measure(
        self, tensors: Callable[[], Any], step: Callable[[], None], device: torch.device
    ) -> tuple[int, float]:
        held = measure_bytes(tensors, step, device)
        return held, _fastest_s(step, STEPS - 1, device)


def _fastest_s(step: Callable[[], None], steps: int, device: torch.device) -> float:
    clock = step_clock(device)
    times = []
    for _ in range(steps):
        started = clock()
        step()
        times.append(clock() - started)
    return min(times)


def _worth_trying(step_s: Mapping[int, float], size: int, allowed_s: float) -> bool:
    """Return whether a size should be measured, given the smaller ones and what probing may take."""
    sizes = sorted(step_s)
    expected_s = STEPS * (sum(step_s.values()) + step_s[sizes[-1]] * size / sizes[-1])
    if size > 2 and expected_s > allowed_s:
        return False
    if size <= ALWAYS:
        return True
    rates = [step_s[known] / known for known in sizes]
    return rates[-1] < rates[-2] * IMPROVEMENT


def monotone(step_s: dict[int, float]) -> dict[int, float]:
    """Return the times without those that cannot be: fewer trials never take longer than more of them."""
    least = float("inf")
    cleaned: dict[int, float] = {}
    for size in sorted(step_s, reverse=True):
        least = min(least, step_s[size])
        cleaned[size] = least
    return dict(sorted(cleaned.items()))
