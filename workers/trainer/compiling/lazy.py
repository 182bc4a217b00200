"""The training step of one model: eager at first, compiled from the step on where that is measured to pay.

Every step that is timed is a training step that counts; trying costs one compilation and one step more. Only
batches of full size are compiled, so that nothing is ever compiled for an epoch's last batch, and evaluation
stays eager. Whatever torch.compile raises sends the model back to eager steps.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tuning.core.containers import GPU_RULES, CompileRules, Judgement, judge, worth_trying
from tuning.core.study.compiling import CompileChance
from workers.trainer.clocks import compile_clock, step_clock
from workers.trainer.compiling.agreement import Comparison, random_state, restore_random
from workers.trainer.compiling.compilers import why_off
from workers.trainer.compiling.findings import Findings, kind_of
from workers.trainer.compiling.inductor import compiled_model, is_compiled

WARM_UP = 2  # eager steps before the first one that is timed
TIMED = 5  # steps of each kind
FAR_TOO_SLOW = 3.0  # compiled steps this many times as slow as eager ones are not made five times
MOST_ATTEMPTS = 2  # of one run: other threads may make it pay, or no more

Gradients = Callable[[Callable[..., Any]], Tensor]
Update = Callable[[], None]
Tell = Callable[[Mapping[str, Any], float], None]


class LazyStep:
    """Makes the steps of one model. `tell` hears each decision and the wall seconds spent compiling so far.

    `title` names what is trained (`target`, for example); `left` is how many steps with a full batch of
    `batch_size` samples are certainly left.
    """

    def __init__(
        self, model: nn.Module, title: str, device: torch.device, batch_size: int, left: int,
        chance: CompileChance, tell: Tell,
    ) -> None:  # fmt: skip
        self.model, self.title, self.device, self.batch_size, self.left = (
            model,
            title,
            device,
            batch_size,
            left,
        )
        self.chance, self.tell = chance, tell
        self.rules = chance.rules or (GPU_RULES if device.type == "cuda" else CompileRules())
        self.began_s = time.monotonic()
        self.seconds, self.attempts = 0.0, 0
        self.forward: Callable[..., Any] = model
        self.draws = False  # whether a step draws random numbers
        self._begin()
        off = why_off(device.type) or ("the workload compiled its model" if is_compiled(model) else None)
        if off:
            self._decide("off", f"{off}; it trains eagerly")

    def step(self, inputs: Any, gradients: Gradients, update: Update) -> Tensor:
        """Make one step: `gradients` runs a forward and its backward pass, `update` the optimizer."""
        if _samples(inputs) != self.batch_size:
            loss = gradients(self.model)
            update()
            return loss
        self.left -= 1
        if self.stage != self._eager and torch.get_num_threads() != self.about["threads"]:
            self._begin()
        return self.stage(gradients, update)

    def _begin(self) -> None:
        """Start from eager steps, with what is known of this graph on this device with these threads."""
        self.about = {"model": self.title, "shape": self.chance.shape, **kind_of(self.device)}
        self.findings = Findings(self.chance.known, self.about)
        self.clock, self.compile_clock = step_clock(self.device), compile_clock(self.device)
        self.warm_up = WARM_UP
        self.eager_s: list[float] = []
        self.fast_s: list[float] = []
        self.compile_s: float | None = None
        self.stage: Callable[[Gradients, Update], Tensor] = self._look

    # The stages of a model: look, compile, compare, and then fast or eager for good. Where an earlier run has
    # compared, this one does not.

    def _look(self, gradients: Gradients, update: Update) -> Tensor:
        loss = self._timed(lambda: gradients(self.model), update, self.eager_s)
        if self.warm_up:
            self.warm_up -= 1
            self.eager_s.clear()
        if len(self.eager_s) >= TIMED:
            self._consider()
        return loss

    def _consider(self) -> None:
        """Decide, after a few eager steps, whether to compile."""
        eager_s, expected_s = statistics.median(self.eager_s), self.findings.expected_s()
        known = self.findings.verdict
        if self.attempts >= MOST_ATTEMPTS:
            self._decide("not tried", f"it was compiled {self.attempts} times for other numbers of threads")
        elif known and known["outcome"] != "kept":
            self._decide("not tried", f"an earlier run found: {known['reason']}")
        else:
            if known:
                found = judge(eager_s, eager_s * self.findings.share, expected_s, self._certain(), self.rules)
            else:
                found = worth_trying(eager_s, expected_s, self._certain(), self.rules)
            if found.pays:
                self.stage = self._compile
            else:
                self._decide("not tried", found.reason, found)

    def _compile(self, gradients: Gradients, update: Update) -> Tensor:
        """Compile, and make this step both ways; the eager one counts."""
        self.attempts += 1
        comparison = Comparison(self.model, self.device)
        failure = self._compiling(lambda: comparison.compiled(lambda: gradients(self.forward)))
        before = random_state(self.device)
        loss = gradients(self.model)
        self.draws = not torch.equal(before, random_state(self.device))
        lost = not torch.isfinite(loss).all()
        difference = None if failure or lost else comparison.difference(loss)
        update()
        if failure:
            self._decide("failed", failure)
            return loss
        self.findings.keep(self.compile_s or 0.0)
        if lost:
            self._decide("not tried", "its loss is not finite")
        elif difference:
            self._decide("dropped", difference)
        elif self.findings.verdict:
            self._weigh(statistics.median(self.eager_s) * self.findings.share)
        else:
            self.eager_s.clear()
            self.stage = self._compare
        return loss

    def _compiling(self, make_step: Callable[[], None]) -> str | None:
        """Compile, and return why that failed; the seconds it took are kept either way."""
        wall_s, begin_s = time.perf_counter(), self.compile_clock()
        try:
            self.forward = compiled_model(self.model)
            make_step()
            return None
        except Exception as error:
            return _failure(error)
        finally:
            self.compile_s = max(self.compile_clock() - begin_s, 0.0)
            self.seconds += time.perf_counter() - wall_s

    def _compare(self, gradients: Gradients, update: Update) -> Tensor:
        """Time compiled and eager steps in turn, so that both meet the same load of the machine."""
        if len(self.fast_s) > len(self.eager_s):
            loss = self._timed(lambda: gradients(self.model), update, self.eager_s)
        else:
            loss = self._timed(lambda: self._guarded(gradients), update, self.fast_s)
        if self.stage == self._compare and self.eager_s:
            fast_s, eager_s = statistics.median(self.fast_s), statistics.median(self.eager_s)
            hopeless = len(self.eager_s) >= 2 and fast_s > FAR_TOO_SLOW * eager_s
            if hopeless or len(self.eager_s) >= TIMED:
                self._weigh(fast_s)
        return loss

    def _weigh(self, fast_s: float) -> None:
        """Keep what was compiled, or drop it; what compiling has cost is spent either way."""
        found = judge(
            statistics.median(self.eager_s), fast_s, 0.0, self._certain(), self.rules, self.compile_s
        )
        self.fast_s = [fast_s]
        self._decide("kept" if found.pays else "dropped", found.reason, found)

    def _fast(self, gradients: Gradients, update: Update) -> Tensor:
        loss = self._guarded(gradients)
        update()
        return loss

    def _eager(self, gradients: Gradients, update: Update) -> Tensor:
        loss = gradients(self.model)
        update()
        return loss

    def _guarded(self, gradients: Gradients) -> Tensor:
        """Make a compiled step, or, where it raises, an eager one with the same random numbers."""
        before = random_state(self.device) if self.draws else None
        try:
            return gradients(self.forward)
        except Exception as error:
            self._decide("failed", _failure(error))
        if before is not None:
            restore_random(self.device, before)
        return gradients(self.model)

    def _timed(self, make: Callable[[], Tensor], update: Update, seconds: list[float]) -> Tensor:
        begin_s = self.clock()
        loss = make()
        update()
        seconds.append(max(self.clock() - begin_s, 1e-9))
        return loss

    def _certain(self) -> int:
        """The steps that are certainly left: up to the study's deadline, where it has one."""
        if self.chance.seconds_left is None:
            return max(self.left, 0)
        seconds = self.chance.seconds_left - (time.monotonic() - self.began_s)
        return max(min(self.left, int(seconds / statistics.median(self.eager_s))), 0)

    def _decide(self, outcome: str, reason: str, found: Judgement | None = None) -> None:
        """Go on eagerly, or compiled where that is kept, and tell why."""
        self.stage = self._fast if outcome == "kept" else self._eager
        if outcome != "kept":
            self.forward = self.model
        decision = {
            **self.about,
            "outcome": outcome,
            "reason": reason,
            "steps_left": max(self.left, 0),
            "eager_step_s": statistics.median(self.eager_s) if self.eager_s else None,
            "compiled_step_s": statistics.median(self.fast_s) if self.fast_s else None,
            "compile_s": self.compile_s,
            "break_even_steps": found.break_even_steps if found else None,
        }
        self.tell(decision, self.seconds)


def _samples(inputs: Any) -> int:
    """The samples of a batch: of its first tensor, where it has several."""
    while not isinstance(inputs, Tensor):
        inputs = next(iter(inputs.values() if isinstance(inputs, Mapping) else inputs))
    return len(inputs)


def _failure(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"torch.compile failed: {type(error).__name__}{': ' + lines[0][:200] if lines else ''}"
