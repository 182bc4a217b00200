"""`forebay bench compile` trains both ways on the same batches, and reads the break-even point off them."""

import pytest
import torch

from forebay.cli.bench import compiling_cases
from forebay.cli.bench.report import Times


def test_a_target_whose_forward_is_its_own_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling_cases, "compiled_model", lambda model: model)
    threads = torch.get_num_threads()
    found = compiling_cases.measure("digits-mlp", "cpu", 128, rounds=1, steps=2, folder=str(tmp_path))
    assert (found["batch_size"], found["steps_per_epoch"], found["weights_apart"]) == (128, 11, 0.0)
    assert min(found["eager_step_s"], found["compiled_step_s"], found["compile_s"]) > 0.0
    assert torch.get_num_threads() == threads


def test_the_break_even_point_is_given_in_steps_and_in_epochs(tmp_path, monkeypatch):
    measured = {"eager": Times((0.04,)), "compiled": Times((0.03,))}
    monkeypatch.setattr(compiling_cases, "compiled_model", lambda model: model)
    monkeypatch.setattr(compiling_cases.report, "interleaved", lambda cases, rounds: measured)
    monkeypatch.setattr(compiling_cases.Target, "compile", lambda self: 11.0)
    found = compiling_cases.measure("digits-mlp", "cpu", 128, rounds=1, steps=2, folder=str(tmp_path))
    assert found["break_even_steps"] == pytest.approx(1100, abs=1)
    assert found["break_even_epochs"] == pytest.approx(100, abs=0.1)
    assert found["saved"] == pytest.approx(0.25)
