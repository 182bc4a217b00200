"""Workloads: found by name, described without PyTorch, read into batches whose order is reproducible."""

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tuning.core.errors import SpecError, WorkloadError
from tuning.core.space import choice, loguniform, uniform
from tuning.core.study import StudySpec
from tuning.core.workload import Workload
from workers.trainer.batches import ReadConfig, batch_bounds, load_data
from workers.trainer.describe import describe
from workers.trainer.draws import record_draws
from workers.trainer.facts import study_facts
from workers.trainer.loading import load_workload
from workers.trainer.workloads.package_data import prepared

BUNDLED = ("digits-mlp", "mnist-cnn", "mnist1d-conv", "pydoc-gpt")


def test_the_bundled_workloads_are_described_without_loading_torch() -> None:
    code = (
        "import sys, json; from workers.trainer.describe import describe_all; "
        "print(json.dumps([describe_all(), sorted({'torch', 'sklearn', 'mlxtend'} & sys.modules.keys())]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    described, loaded = json.loads(done.stdout)
    assert loaded == []
    found = {workload["name"]: workload for workload in described}
    assert set(BUNDLED) <= found.keys()
    digits = found["digits-mlp"]
    assert (digits["error"], digits["metric"], digits["mode"], digits["epochs"]) == (
        None,
        "accuracy",
        "max",
        20,
    )
    assert digits["space"]["lr"] == {"type": "loguniform", "low": 0.001, "high": 1.0}
    assert digits["parameters"]["width"]["default"] == 512
    assert all(digits["transfers"].values())


def test_digits_are_split_as_promised() -> None:
    data = load_data(load_workload("digits-mlp"), {}, "cpu")
    assert (len(data.train), len(data.validation)) == (1437, 360)
    inputs, targets = data.train.take(0, 8)
    assert inputs.shape == (8, 64)
    assert 0 <= float(inputs.min()) <= float(inputs.max()) <= 1
    assert targets.dtype == torch.int64


@pytest.mark.parametrize("name", ["mnist-cnn", "pydoc-gpt"])
def test_a_bundled_model_takes_its_own_data(name: str) -> None:
    workload = load_workload(name)
    data = load_data(workload, {"batch_size": 2}, "cpu")
    inputs, targets = data.train.take(0, 2)
    loss = workload.loss(workload.model({})(inputs), targets)
    assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("digits", "must be a registered name"),
        ("nothing.here:X", "cannot be imported: ModuleNotFoundError"),
        ("workers.trainer.orders:Nope", "does not exist: no 'Nope' there"),
        ("workers.trainer.orders:GoOn", "it must be a forebay.Workload"),
        ("workers.trainer.orders:Setting.workload", "does not exist"),
    ],
)
def test_what_cannot_be_loaded_says_why(reference: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        load_workload(reference)
    assert describe(reference)["error"]


def test_parameters_are_checked_against_what_the_workload_declares() -> None:
    assert load_workload("digits-mlp", {"width": 64}).width == 64  # type: ignore[attr-defined]
    with pytest.raises(SpecError) as caught:
        load_workload("digits-mlp", {"width": 1, "depth": 3})
    assert [p.pointer for p in caught.value.problems] == ["/parameters/width", "/parameters/depth"]


def test_the_facts_name_what_changes_an_operators_shape() -> None:
    class Switches(Workload):
        space = {
            "lr": loguniform(1e-3, 1),
            "width": choice([8, 16]),
            "act": choice(["relu", "tanh"]),
            "noise": uniform(0, 1),
            "batch_size": choice([4, 8]),
        }

        def model(self, config: Any) -> nn.Module:
            return nn.Linear(2, config["width"])

        def data(self, config: Any) -> Any:
            points = torch.zeros(12, 2) + (config["noise"] > 2)
            return (points, points), (points, points)

    facts = study_facts(Switches(), StudySpec("s", scaling=1))
    assert facts.static_names == ("act", "noise", "width")
    assert facts.samples == 12
    one = {"lr": 0.1, "width": 8, "act": "relu", "noise": 0.5, "batch_size": 4}
    assert facts.shape_of(one) == facts.shape_of({**one, "lr": 0.5})
    assert (
        len(
            {
                facts.shape_of(one),
                facts.shape_of({**one, "width": 16}),
                facts.shape_of({**one, "batch_size": 8}),
            }
        )
        == 3
    )


@pytest.mark.parametrize(
    ("samples", "size", "fold", "bounds"),
    [
        (8, 4, True, [(0, 4), (4, 8)]),
        (9, 4, True, [(0, 4), (4, 9)]),
        (9, 4, False, [(0, 4), (4, 8), (8, 9)]),
        (10, 4, True, [(0, 4), (4, 8), (8, 10)]),
        (1, 4, True, [(0, 1)]),
        (3, 4, True, [(0, 3)]),
    ],
)
def test_a_last_batch_of_one_is_folded_where_the_model_cannot_take_it(
    samples: int, size: int, fold: bool, bounds: list[tuple[int, int]]
) -> None:
    assert batch_bounds(samples, size, fold) == bounds


class Counted(Workload):
    """Numbers 0 to 9 as tensors or as a dataset."""

    def __init__(self, as_dataset: bool) -> None:
        super().__init__()
        self.as_dataset = as_dataset

    def data(self, config: Any) -> Any:
        numbers = torch.arange(10.0)[:, None]
        whole = (numbers, torch.arange(10))
        if not self.as_dataset:
            return whole, whole
        items = [(number, int(number)) for number in numbers]
        return items, TensorDataset(*whole)


def test_the_order_depends_on_seed_and_epoch_only_and_is_the_same_for_datasets() -> None:
    def order(as_dataset: bool, seed: int, epoch: int) -> list[int]:
        data = load_data(Counted(as_dataset), {}, "cpu")
        return [int(t) for _, targets in data.training_batches(seed, epoch, 4, False) for t in targets]

    first = order(False, 1, 1)
    assert sorted(first) == list(range(10))
    assert order(False, 1, 1) == order(True, 1, 1) == first
    assert len({tuple(order(False, s, e)) for s in (1, 2) for e in (1, 2)}) == 4


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must return \\(train, validation\\)"),
        ((torch.zeros(3), torch.zeros(3)), "train data must be|is empty|items must be"),
        (((torch.zeros(3), torch.zeros(2)), ([], [])), "3 inputs and 2 targets"),
        (((torch.zeros(0, 1), torch.zeros(0)), (torch.zeros(1, 1), torch.zeros(1))), "train data is empty"),
        ((3, 4), "must be \\(inputs, targets\\) tensors or a map-style dataset"),
    ],
)
def test_data_of_the_wrong_form_is_refused(returned: Any, message: str) -> None:
    class Wrong(Workload):
        def data(self, config: Any) -> Any:
            return returned

    with pytest.raises(WorkloadError, match=message):
        load_data(Wrong(), {}, "cpu").train.take(0, 2)


def test_a_configuration_remembers_what_was_read() -> None:
    config = ReadConfig({"a": 1, "b": 2, "c": 3})
    assert config["a"] + config.get("b", 0) == 3
    assert config.read == {"a", "b"}
    dict(**config)
    assert config.read == {"a", "b", "c"}


def test_parameters_are_drawn_again_as_their_initialisers_would() -> None:
    def build() -> nn.Module:
        module = nn.Sequential(nn.Linear(4, 8), nn.Embedding(5, 3), nn.LayerNorm(3))
        nn.init.xavier_normal_(module[0].weight, gain=0.5)
        with torch.no_grad():
            module[1].weight[2].zero_()
        return module

    torch.manual_seed(1)
    template, draws = record_draws(build)
    fresh = draws.draw(dict(template.named_parameters()), seed=7)
    again = draws.draw(dict(template.named_parameters()), seed=7)
    other = draws.draw(dict(template.named_parameters()), seed=8)
    assert all(torch.equal(fresh[name], again[name]) for name in fresh)
    assert not torch.equal(fresh["0.weight"], other["0.weight"])
    assert float(fresh["0.weight"].std()) == pytest.approx(0.5 * (2 / 12) ** 0.5, rel=0.4)
    assert float(fresh["1.weight"][2].abs().sum()) == 0
    assert torch.equal(fresh.get("2.weight", torch.ones(3)), torch.ones(3))


def test_prepared_data_is_kept_and_a_damaged_file_is_made_again(tmp_path: Any, monkeypatch: Any) -> None:
    import numpy as np

    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path))
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"x": np.arange(3)}

    assert prepared("numbers", make)["x"].tolist() == [0, 1, 2]
    assert prepared("numbers", make)["x"].tolist() == [0, 1, 2]
    assert len(made) == 1
    (tmp_path / "numbers.npz").write_bytes(b"PK broken")
    assert prepared("numbers", make)["x"].tolist() == [0, 1, 2]
    assert len(made) == 2
