"""`forebay.tune` and `forebay tune`: whole studies with real device processes."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import forebay
from tuning.core.errors import SnapshotError, SpecError, WorkloadError


class Rings(forebay.Workload):
    """Two rings of points."""

    space = {"lr": forebay.loguniform(1e-3, 1.0), "batch_size": forebay.choice([16, 32])}
    metric, mode, epochs = "accuracy", "max", 4

    def model(self, config: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def data(self, config: Any) -> Any:
        generator = torch.Generator().manual_seed(0)
        angles = torch.rand(160, generator=generator) * 2 * math.pi
        labels = torch.arange(160) % 2
        points = torch.stack([angles.cos(), angles.sin()], 1) * (1 + labels[:, None])
        return (points[:96], labels[:96]), (points[96:], labels[96:])

    def metrics(self, output: Any, target: Any) -> Any:
        return {"accuracy": (output.argmax(-1) == target).float().mean()}

    def optimizer(self, config: Any) -> Any:
        return torch.optim.SGD, {"lr": config["lr"], "momentum": 0.9}


def tune(**options: Any) -> forebay.TuneResult:
    return forebay.tune(Rings, **{"scaling": 4, "devices": 2, "trials": 6, **options})


def states(result: forebay.TuneResult) -> list[str]:
    return [row["state"] for row in result.document["trial_table"]]


def test_a_study_finds_and_trains_a_full_width_model(tmp_path: Path) -> None:
    result = tune(out=tmp_path, top_k=2)
    document = result.document
    assert document["state"] == "completed"
    assert states(result) == ["completed"] * 6
    assert result.best is not None
    assert load_file(result.best["model"])["2.weight"].shape == (32, 32)
    assert json.loads((tmp_path / "result.json").read_text()) == document
    assert not list(tmp_path.glob("*.pt"))
    assert [target["state"] for target in document["targets"]] == ["completed", "completed"]
    assert sorted(trial for c in document["containers"] for trial in c["trials"]) == list(range(6))
    assert {c["note"] for c in document["containers"]} == {None}
    assert document["transfer"]["coordinate_check"] == "passed"
    assert document["warnings"] == []
    assert 0 < document["search_s"] <= document["makespan_s"]
    frame = result.trials
    assert list(frame["trial"]) == list(range(6))
    assert {"config.lr", "config.batch_size", "metric", "epochs", "state"} <= set(frame.columns)
    assert set(result.figures) >= {"learning_curves", "timeline", "surrogate_against_target"}


def test_results_depend_on_the_seed_and_not_on_devices_or_fusion() -> None:
    def metrics(**options: Any) -> list[float]:
        return [row["metric"] for row in tune(eager=1, top_k=1, **options).document["trial_table"]]

    first = metrics(devices=1)
    assert metrics(devices=2, fusion="off") == pytest.approx(first)
    assert metrics(devices=2, fusion=2) == pytest.approx(first)
    assert metrics(devices=1, seed=1) != pytest.approx(first)


def test_asha_stops_trials_and_says_why() -> None:
    result = tune(trials=12, scheduler={"name": "asha", "grace": 1, "reduction": 3}, top_k=1)
    found = states(result)
    assert set(found) == {"completed", "stopped"}
    stopped = [row for row in result.document["trial_table"] if row["state"] == "stopped"]
    assert all("go on" in row["reason"] and row["epochs"] in (1, 3) for row in stopped)


@pytest.mark.parametrize("search", ["tpe", "grid"])
def test_other_searches_run_fused_too(search: str) -> None:
    space = {"lr": forebay.grid([0.01, 0.1, 0.3])}
    result = tune(search=search, trials=8, space=space if search == "grid" else None, top_k=1, epochs=2)
    assert len(states(result)) == (6 if search == "grid" else 8)


def test_without_scaling_the_best_trial_is_the_model(tmp_path: Path) -> None:
    result = tune(scaling=1, out=tmp_path)
    assert result.document["targets"] == []
    assert result.best is not None
    assert result.best["surrogate_metric"] is None
    assert [path.name for path in tmp_path.glob("*.safetensors")] == [
        f"trial-{result.best['trial']}.safetensors"
    ]


def test_a_device_process_that_is_killed_costs_nothing_but_time(tmp_path: Path) -> None:
    killed: list[int] = []

    class Slow(Rings):
        epochs = 30

        def metrics(self, output: Any, target: Any) -> Any:
            flag = tmp_path / "killed"
            if not flag.exists():
                flag.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return super().metrics(output, target)

    undisturbed = tune(epochs=30, devices=1, trials=4, eager=1).document["trial_table"]
    result = forebay.tune(Slow, scaling=4, devices=1, trials=4, eager=1, out=tmp_path / "out")
    killed.append(int((tmp_path / "killed").read_text()))
    assert killed
    assert states(result) == ["completed"] * 4
    assert any(c["outcome"] == "lost" for c in result.document["containers"])
    again = result.document["trial_table"]
    assert [row["metric"] for row in again] == pytest.approx([row["metric"] for row in undisturbed])


def test_trials_that_raise_or_diverge_fail_alone_with_their_reasons() -> None:
    class Picky(Rings):
        space = {"lr": forebay.grid([0.1, 1e30, 0.2, 0.5])}

        def optimizer(self, config: Any) -> Any:
            if config["lr"] == 0.2:
                raise ValueError("I do not like 0.2")
            return super().optimizer(config)

    result = forebay.tune(Picky, search="grid", trials=4, scaling=4, devices=1, top_k=1)
    table = result.document["trial_table"]
    assert [row["state"] for row in table] == ["completed", "failed", "failed", "completed"]
    assert table[1]["reason"].startswith("non-finite loss at epoch ")
    assert table[2]["reason"] == "ValueError: I do not like 0.2"


def test_a_study_without_a_valid_trial_has_no_best() -> None:
    class Hopeless(Rings):
        space = {"lr": forebay.grid([1e30, 1e31])}

    result = forebay.tune(Hopeless, search="grid", scaling=4, devices=1)
    assert result.best is None
    assert (result.document["state"], result.document["reason"]) == ("failed", "no valid trial")


def test_a_deadline_cuts_the_search_and_leaves_a_full_model() -> None:
    result = tune(trials=20_000, epochs=50, deadline_s=12.0, eager=1, fusion=8)
    assert "cut" in states(result)
    assert result.best is not None
    assert Path(result.best["model"]).exists()


class Interrupting(Rings):
    """Interrupts its driver once, in the middle of a study."""

    flag: Path

    def metrics(self, output: Any, target: Any) -> Any:
        with self.flag.open("a") as file:
            file.write(".")
        if self.flag.stat().st_size == 12:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(3)  # what is left is done in less than a busy machine needs to pass a signal on
        return super().metrics(output, target)


@pytest.fixture
def _heeds_interrupts() -> Iterator[None]:
    """A test run in a shell's background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heeds_interrupts")
def test_an_interrupted_study_resumes_to_the_exact_number_of_trials(tmp_path: Path) -> None:
    workload = Interrupting()
    workload.flag = tmp_path / "evaluations"
    options: dict[str, Any] = {"scaling": 4, "devices": 1, "epochs": 20, "top_k": 1, "eager": 1}
    first = forebay.tune(workload, trials=4, out=tmp_path / "out", **options)
    assert (first.document["state"], first.document["reason"]) == ("cut", "interrupted")
    assert "cut" in states(first)
    again = forebay.tune(workload, trials=5, resume=tmp_path / "out", **options)
    assert states(again) == ["completed"] * 5
    whole = forebay.tune(workload, trials=5, **options)
    assert [row["metric"] for row in again.document["trial_table"]] == pytest.approx(
        [row["metric"] for row in whole.document["trial_table"]]
    )


def test_a_folder_is_not_used_twice_and_a_resumed_study_must_be_the_same(tmp_path: Path) -> None:
    tune(trials=1, epochs=1, top_k=1, out=tmp_path)
    with pytest.raises(SnapshotError, match="already holds a study"):
        tune(trials=1, out=tmp_path)
    with pytest.raises(SnapshotError, match="`seed` is 3 now and was 0"):
        tune(trials=2, epochs=1, seed=3, resume=tmp_path)
    with pytest.raises(SnapshotError, match="holds no study"):
        tune(resume=tmp_path / "nothing")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"trials": 0}, "/trials: must be a whole number from 1"),
        ({"tirals": 3}, "/tirals: is no known field"),
        ({"space": {"lr": 3, "depth": forebay.choice([1])}}, "/space/depth: is no parameter of Rings"),
        ({"space": {"lr": {"type": "loguniform", "low": 0, "high": 1}}}, "/space/lr/low: must be above 0"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        forebay.tune(Rings, **options)


def test_dropout_is_not_searched_on_surrogates() -> None:
    class Dropping(Rings):
        space = {**Rings.space, "dropout": forebay.uniform(0, 0.5)}

    with pytest.raises(SpecError, match="/spec/space/dropout: does not transfer"):
        forebay.tune(Dropping, trials=1)


@pytest.mark.parametrize("workload", [3, "no-such-workload", "no.such:Thing", lambda config: None])
def test_what_is_no_workload_is_refused(workload: Any) -> None:
    with pytest.raises(WorkloadError, match="workload"):
        forebay.tune(workload)


def cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "forebay.cli.main", "tune", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )


def test_the_command_prints_one_json_document(tmp_path: Path) -> None:
    options = "--trials 4 --epochs 2 --parameter width=32 --top-k 1 --scheduler asha --grace 1 --out study"
    done = cli("digits-mlp", *options.split(), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["workload"], document["trials"], document["scheduler"]) == ("digits-mlp", 4, "asha")
    assert document["best"]["model"].startswith("study/target-")
    assert (tmp_path / document["best"]["model"]).exists()
    keys = ("makespan_s", "search_s", "target_s", "profiling_s", "repacking_s", "device_seconds", "transfer")
    assert set(keys) <= set(document)
    # two epochs of a narrow model are over long before a compiler would be
    assert document["compiling_s"] == 0.0
    assert {(one["model"], one["outcome"]) for one in document["compile"]} == {("target", "not tried")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "WORKLOAD is missing"),
        (["digits-mlp", "--trials", "x"], "'--trials'"),
        (["digits-mlp", "--trials", "-1"], "--trials must be a whole number"),
        (["digits-mlp", "--compile", "always"], "--compile must be one of auto, off"),
        (["digits-mlp", "--search", "grid"], "--search grid is not possible: lr"),
        (["digits-mlp", "--parameter", "width=1"], "--parameter width must be in"),
        (["digits-mlp", "--resume", "nowhere"], "holds no study"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = cli(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


class Damped(Rings):
    """Rings with dropout, which says nothing at another width."""

    space = {**Rings.space, "dropout": forebay.uniform(0.0, 0.5)}

    def model(self, config: Any) -> nn.Module:
        return nn.Sequential(
            nn.Linear(2, 32), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(32, 32), nn.ReLU(),
            nn.Linear(32, 2),
        )  # fmt: skip


def test_what_does_not_transfer_is_refused_or_searched_on_the_target(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="target_search"):
        forebay.tune(Damped, trials=2, scaling=4)
    result = forebay.tune(Damped, trials=3, scaling=4, devices=2, top_k=1, target_search=2, out=tmp_path)
    assert {row["config"]["dropout"] for row in result.document["trial_table"]} == {0.0}
    values = {target["variant"]: target["values"] for target in result.document["targets"]}
    assert values[0] == {}
    assert {round(values[number]["dropout"], 3) for number in (1, 2)} == {0.125, 0.375}
    assert len(list(tmp_path.glob("target-*.safetensors"))) == 3
