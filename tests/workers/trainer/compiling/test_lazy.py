"""Steps that are compiled on the way: the same weights, one compilation, and eager steps where it fails."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tuning.core.containers import CompileRules
from tuning.core.study import CompileChance, CompileDecided, Member, Reported
from workers.trainer.compiling import compilers, lazy
from workers.trainer.compiling.agreement import relative_distance
from workers.trainer.compiling.findings import Findings
from workers.trainer.container import run_container
from workers.trainer.orders import ContainerOrder, Setting, TargetOrder
from workers.trainer.target import train_target
from workers.trainer.workloads.digits_mlp import DigitsMlp

CONFIG = {"lr": 0.05, "momentum": 0.9, "batch_size": 128, "gamma": 0.5}
SHAPE = '{"batch_size": 128}'
ALWAYS = CompileRules(margin=0.0, best_saving=1.0, least_saving=-1e9)  # however slow it is


class Digits(DigitsMlp):
    """The bundled workload, with dropout: what is compiled must draw the numbers that eager steps draw."""

    def model(self, config: Any) -> Any:
        body = list(super().model(config))
        return torch.nn.Sequential(*body[:-1], torch.nn.Dropout(0.2), body[-1])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test begins on a machine that has compiled nothing."""
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "kernels"))
    compilers.why_off.cache_clear()
    yield
    compilers.why_off.cache_clear()


def train(
    folder: Path, chance: CompileChance | None, epochs: int = 3, workload: Any = None
) -> tuple[Any, dict[str, torch.Tensor], list[CompileDecided]]:
    events: list[Any] = []
    setting = Setting("digits-mlp", str(folder), data_seed=1, scaling=4, threads=1)
    order = TargetOrder("t0", setting, 17, CONFIG, seed=3, epochs=epochs, compiling=chance)
    ended = train_target(order, events.append, workload=workload or DigitsMlp(width=16))
    decided = [event for event in events if isinstance(event, CompileDecided)]
    return ended, load_file(str(ended.model)), decided


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    return max(relative_distance([left[name]], [right[name]]) for name in left)


def test_a_compiled_target_has_the_weights_of_the_eager_one_and_the_next_one_does_not_compare_again(
    tmp_path: Path,
) -> None:
    workload = Digits(width=16)
    _, eager, _ = train(tmp_path / "a", None, workload=workload)
    ended, compiled, (first,) = train(tmp_path / "b", CompileChance(SHAPE, rules=ALWAYS), workload=workload)
    assert ended.state == "completed"
    assert (first.decision["outcome"], first.decision["model"], first.run) == ("kept", "target", "t0")
    assert first.seconds > 0.0
    assert first.decision["compile_s"] > first.decision["compiled_step_s"] > 0.0
    # three epochs of eleven full batches: two to warm up, five eager, one both ways, some of each in turn
    assert 33 - 18 <= first.decision["steps_left"] < 33 - 8
    assert distance(compiled, eager) < 1e-5

    known = CompileChance(SHAPE, (first.decision,), rules=ALWAYS)
    _, again, (second,) = train(tmp_path / "c", known, workload=workload)
    assert (second.decision["outcome"], second.decision["steps_left"]) == ("kept", 33 - 8)
    assert second.decision["compile_s"] < first.decision["compile_s"]
    assert distance(again, eager) < 1e-5


def test_without_a_compiler_a_target_trains_eagerly_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    ended, _, (decided,) = train(tmp_path, CompileChance(SHAPE, rules=ALWAYS), epochs=1)
    assert ended.state == "completed"
    assert decided.decision["outcome"] == "off"
    assert decided.decision["reason"] == "no C++ compiler (g++ or clang++) found; it trains eagerly"
    assert decided.seconds == 0.0


def test_a_short_run_is_not_compiled_at_all(tmp_path: Path) -> None:
    _, _, (decided,) = train(tmp_path, CompileChance(SHAPE), epochs=1)
    assert decided.decision["outcome"] == "not tried"
    assert decided.decision["reason"].endswith("compiling takes about 20.0 s")
    assert decided.seconds == 0.0


def test_what_an_earlier_run_dropped_is_not_tried_again(tmp_path: Path) -> None:
    _, _, (unknown,) = train(tmp_path, CompileChance(SHAPE), epochs=1)
    dropped = {**unknown.decision, "outcome": "dropped", "reason": "it was slower", "compile_s": 9.0}
    _, _, (decided,) = train(tmp_path, CompileChance(SHAPE, (dropped,), rules=ALWAYS), epochs=1)
    assert (decided.decision["outcome"], decided.decision["reason"]) == (
        "not tried",
        "an earlier run found: it was slower",
    )


def broken_from(call: int) -> Callable[[torch.nn.Module], Callable[..., Any]]:
    """A compiler whose code raises from its `call`-th run on, after it has drawn random numbers."""

    def compiled(model: torch.nn.Module) -> Callable[..., Any]:
        calls = iter(range(1, 1000))

        def forward(*inputs: Any) -> Any:
            if next(calls) >= call:
                torch.rand(7)
                raise RuntimeError("InductorError: the generated code is broken\nand so on")
            return model(*inputs)

        return forward

    return compiled


@pytest.mark.parametrize("call", [1, 3, 12])
def test_an_exception_of_the_compiled_code_sends_the_model_back_to_eager_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    workload = Digits(width=16)
    _, eager, _ = train(tmp_path / "a", None, workload=workload)
    monkeypatch.setattr(lazy, "compiled_model", broken_from(call))
    ended, weights, decided = train(tmp_path / "b", CompileChance(SHAPE, rules=ALWAYS), workload=workload)
    assert ended.state == "completed"
    assert decided[-1].decision["outcome"] == "failed"
    assert decided[-1].decision["reason"] == (
        "torch.compile failed: RuntimeError: InductorError: the generated code is broken"
    )
    assert all(torch.equal(weights[name], eager[name]) for name in eager)


def test_code_that_computes_something_else_is_dropped_before_it_trains_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "compiled_model", lambda model: lambda inputs: model(inputs) * 1.01)
    _, eager, _ = train(tmp_path / "a", None)
    _, weights, (decided,) = train(tmp_path / "b", CompileChance(SHAPE, rules=ALWAYS))
    assert decided.decision["outcome"] == "dropped"
    assert decided.decision["reason"].startswith("compiled, its gradients differ by")
    assert all(torch.equal(weights[name], eager[name]) for name in eager)


def test_a_loss_that_is_not_finite_says_nothing_about_the_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "compiled_model", lambda model: model)
    monkeypatch.setattr(Findings, "keep", lambda self, seconds: None)
    setting = Setting("digits-mlp", str(tmp_path), data_seed=1, scaling=4, threads=1)
    chance = CompileChance(SHAPE, rules=ALWAYS)
    order = TargetOrder("t0", setting, 17, {**CONFIG, "lr": 1e30}, seed=3, epochs=1, compiling=chance)
    events: list[Any] = []
    assert train_target(order, events.append, workload=DigitsMlp(width=16)).state == "failed"
    (decided,) = [event.decision for event in events if isinstance(event, CompileDecided)]
    assert (decided["outcome"], decided["reason"]) == ("not tried", "its loss is not finite")


@pytest.mark.parametrize(("members", "fused", "title"), [(2, True, "2 fused trials"), (1, False, "trial")])
def test_a_container_whose_steps_are_certain_compiles_the_model_of_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: int, fused: bool, title: str
) -> None:
    compiled: list[torch.nn.Module] = []

    def noted(model: torch.nn.Module) -> torch.nn.Module:
        compiled.append(model)
        return model

    monkeypatch.setattr(lazy, "compiled_model", noted)
    monkeypatch.setattr(Findings, "keep", lambda self, seconds: None)
    metrics = []
    for chance in (None, CompileChance(SHAPE, rules=ALWAYS)):
        events: list[Any] = []
        trials = tuple(
            Member(number, {**CONFIG, "lr": 0.05 * (number + 1)}, number) for number in range(members)
        )
        setting = Setting("digits-mlp", str(tmp_path), data_seed=1, scaling=4, threads=1)
        order = ContainerOrder("c0", setting, trials, 0, 3, fused=fused, compiling=chance)
        assert run_container(order, events.append, workload=DigitsMlp(width=32)).outcome == "finished"
        metrics.append([event.metrics for event in events if isinstance(event, Reported)])
    (decided,) = [event.decision for event in events if isinstance(event, CompileDecided)]
    assert (decided["model"], decided["outcome"], len(compiled)) == (title, "kept", 1)
    assert metrics[0] == metrics[1]


def test_several_trials_that_train_one_by_one_stay_eager(tmp_path: Path) -> None:
    events: list[Any] = []
    trials = tuple(Member(number, CONFIG, number) for number in range(2))
    setting = Setting("digits-mlp", str(tmp_path), data_seed=1, scaling=4, threads=1)
    order = ContainerOrder(
        "c0", setting, trials, 0, 1, fused=False, compiling=CompileChance(SHAPE, rules=ALWAYS)
    )
    run_container(order, events.append, workload=DigitsMlp(width=32))
    assert not [event for event in events if isinstance(event, CompileDecided)]


def test_other_threads_have_the_question_asked_again_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local study gives the cores of idle devices to its last target, and takes them back."""
    monkeypatch.setattr(lazy, "compiled_model", lambda model: model)
    monkeypatch.setattr(Findings, "keep", lambda self, seconds: None)
    told: list[Any] = []
    model = torch.nn.Linear(4, 1)
    chance = CompileChance(SHAPE, rules=ALWAYS)
    made = lazy.LazyStep(model, "target", torch.device("cpu"), 8, 1000, chance, lambda *one: told.append(one))

    def gradients(forward: Callable[..., Any]) -> torch.Tensor:
        model.zero_grad()
        loss = forward(torch.ones(8, 4)).square().mean()
        loss.backward()
        return torch.as_tensor(loss.detach())

    for count in (1, 2, 3, 4):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=count: count)
        for _ in range(30):
            made.step(torch.ones(8, 4), gradients, lambda: None)
    outcomes = [decision["outcome"] for decision, _ in told]
    assert outcomes == ["kept", "kept", "not tried"]


def test_a_deadline_leaves_too_few_certain_steps(tmp_path: Path) -> None:
    chance = CompileChance(SHAPE, seconds_left=0.0, rules=CompileRules(margin=1.0, best_saving=0.9))
    _, _, (decided,) = train(tmp_path, chance, epochs=1)
    assert decided.decision["outcome"] == "not tried"
    assert decided.decision["reason"].startswith("of 0.0 s that are left")
