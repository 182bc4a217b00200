"""Convolutions by columns, and batch norm of what they leave, against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tuning.core.hydro.families.columns import Window, convolve_by_columns, window_of
from tuning.core.hydro.families.normalization import batch_norm
from tuning.core.hydro.families.samples_last import SamplesLastNorm, has_samples_last, samples_last_empty


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def gradients(output: torch.Tensor, *inputs: torch.Tensor) -> list[torch.Tensor]:
    weights = random(*output.shape, seed=9).detach()
    return list(torch.autograd.grad((output * weights).sum(), inputs))


OPTIONS = st.fixed_dictionaries(
    {"stride": st.integers(1, 4), "padding": st.integers(0, 5), "dilation": st.integers(1, 3)}
)


@settings(deadline=None)
@given(
    options=OPTIONS,
    size=st.integers(1, 6),
    positions=st.integers(1, 12),
    samples=st.integers(1, 4),
    groups=st.integers(1, 3),
    each=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    biased=st.booleans(),
)
def test_columns_are_the_convolution_with_its_gradients(
    options, size, positions, samples, groups, each, biased
):
    input = random(samples, groups * each[0], positions, seed=1)
    kernels = random(groups * each[1], each[0], size, seed=2)
    tensors = [input, kernels, *([random(groups * each[1], seed=3)] if biased else [])]
    bias = tensors[2] if biased else None
    window = Window(size, **options)
    if window.outputs(positions) <= 0:
        return
    expected = F.conv1d(input, kernels, bias, **options, groups=groups)
    found = convolve_by_columns(input, kernels, bias, window, groups)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(gradients(found, *tensors), gradients(expected, *tensors), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("shape", "kernels", "groups", "changes", "chosen"),
    [
        ((4, 8, 20), (8, 4, 3), 2, {"stride": (2,)}, True),
        ((4, 8, 20), (8, 4, 1), 2, {}, True),  # pointwise: the columns are the input
        ((4, 8, 20), (8, 4, 3), 2, {}, False),  # columns three times the input
        ((4, 8, 20), (8, 1, 3), 8, {"stride": 2}, False),  # depthwise: no product to speak of
        ((4, 8, 20), (8, 4, 3), 2, {"stride": 2, "padding": "valid"}, False),
        ((4, 8, 2), (8, 4, 5), 2, {"stride": 2}, False),  # nothing comes out: PyTorch says so best
        ((4, 8, 6, 6), (8, 4, 3, 3), 2, {"stride": 2}, False),
    ],
)
def test_columns_are_for_strided_lines(shape, kernels, groups, changes, chosen):
    options = {"stride": 1, "padding": 0, "dilation": 1, **changes}
    found = window_of(torch.zeros(shape), torch.zeros(kernels), options, groups)
    assert (found is not None) == chosen


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("training", "tracked"), [(True, True), (True, False), (False, True)])
def test_batch_norm_keeps_samples_last_and_is_the_same(training, affine, tracked):
    plain = random(5, 6, 4, seed=1)
    input = plain.detach().permute(1, 2, 0).contiguous().permute(2, 0, 1).requires_grad_()
    gains = [random(6, seed=2), random(6, seed=3)] if affine else [None, None]

    def running() -> list:
        return [torch.full((6,), 0.5).double(), torch.full((6,), 2.0).double()] if tracked else [None, None]

    theirs, ours = running(), running()
    expected = F.batch_norm(plain, *theirs, *gains, training, 0.1, 1e-5)
    found = SamplesLastNorm.apply(input, *gains, *ours, training, 0.1, 1e-5)
    assert has_samples_last(found)
    torch.testing.assert_close(found, expected)
    wanted = [tensor for tensor in gains if tensor is not None]
    found = F.relu(found.mul_(1.0), inplace=True)  # layers that follow work in place
    for one, other in zip(
        gradients(found, input, *wanted), gradients(F.relu(expected), plain, *wanted), strict=True
    ):
        torch.testing.assert_close(one, other)
    for one, other in zip(ours, theirs, strict=True):
        assert one is other is None or torch.allclose(one, other)


def test_samples_last_is_told_from_other_orders():
    assert has_samples_last(samples_last_empty(torch.zeros(1), (3, 4, 5)))
    assert not has_samples_last(torch.zeros(3, 4, 5))
    assert not has_samples_last(torch.zeros(3, 4, 5).transpose(1, 2))
    assert not has_samples_last(torch.zeros(1, 4, 5))  # one sample is first and last at once
    assert not has_samples_last(torch.zeros(3, 4))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_mixed_types_is_left_to_pytorch(training):
    lines = torch.randn(4, 5, 6).bfloat16().permute(2, 0, 1)
    gains, shifts, means, variances = (torch.full((2, 2), value) for value in (1.5, 0.5, 0.0, 1.0))
    found = batch_norm(lines, means.clone(), variances.clone(), gains, shifts, training, 0.1, 1e-5)
    tensors = (means.flatten(), variances.flatten(), gains.flatten(), shifts.flatten())
    torch.testing.assert_close(found, F.batch_norm(lines.contiguous(), *tensors, training, 0.1, 1e-5))


def test_convolutions_of_mixed_types_are_left_to_pytorch():
    options = {"stride": 2, "padding": 0, "dilation": 1}
    lines, kernels = torch.randn(4, 8, 20), torch.randn(8, 4, 3)
    assert window_of(lines, kernels, options, 2) is not None
    assert window_of(lines.bfloat16(), kernels, options, 2) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert window_of(lines, kernels, options, 2) is None
