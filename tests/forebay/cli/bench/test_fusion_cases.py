"""The contenders of `forebay bench fusion` do the same work: they end with the same weights."""

import pytest
import torch

from forebay.cli.bench import fusion_cases


@pytest.mark.parametrize("kind", ["mlp", "cnn", "signal", "transformer"])
def test_fused_vmap_and_one_by_one_train_the_same_trials(kind):
    case = fusion_cases.Case(kind, kind, trials=2, batch=4, steps=2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        fused, one_by_one, vectorised = (
            make(case) for make in (fusion_cases.fused, fusion_cases.one_by_one, fusion_cases.vectorised)
        )
        for contender in (fused, one_by_one, vectorised):
            assert contender.run() is None
        for trial in range(2):
            expected = one_by_one.weights(trial)
            for contender in (fused, vectorised):
                for name, tensor in contender.weights(trial).items():
                    torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)
    finally:
        torch.set_num_threads(threads)
