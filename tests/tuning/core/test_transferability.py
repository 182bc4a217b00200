"""Which hyperparameters a surrogate search may include."""

import subprocess
import sys

import pytest

from tuning.core.transferability import Transfer, refused, verdict


@pytest.mark.parametrize(
    "name", ["lr", "momentum", "gamma", "batch_size", "betas", "optimizer.lr", "Learning-Rate"]
)
def test_what_sets_the_dynamics_transfers(name: str) -> None:
    assert verdict(name).transfer is Transfer.YES


@pytest.mark.parametrize(
    "name", ["dropout", "drop_path_rate", "attention_dropout", "model.dropout", "hidden_size"]
)
def test_regularisation_and_structure_are_refused_with_a_reason(name: str) -> None:
    answer = verdict(name)
    assert not answer.allowed
    assert answer.name == name
    assert "target" in answer.reason


@pytest.mark.parametrize(
    ("optimizer", "held", "allowed"),
    [
        ("adamw", True, True),
        ("sgd", True, True),
        ("adamw", False, False),
        ("adam", True, False),
        (None, True, True),
    ],
)
def test_weight_decay_transfers_only_where_rate_times_decay_is_held(
    optimizer: str | None, held: bool, allowed: bool
) -> None:
    answer = verdict("weight_decay", optimizer, decay_held=held)
    assert answer.allowed is allowed
    assert "decay" in answer.reason


def test_a_space_is_checked_as_a_whole() -> None:
    space = ["lr", "dropout", "weight_decay", "temperature"]
    assert [answer.name for answer in refused(space, "adam")] == ["dropout", "weight_decay"]
    assert [answer.name for answer in refused(space, "adamw")] == ["dropout"]


def test_pages_can_ask_without_loading_pytorch() -> None:
    code = "import sys, tuning.core.transferability; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
