"""Every supported layer and function by itself: outputs, gradients and buffers against the plain layer.

Each case is a small model with a trainable layer before it (so that values differ between trials) and, where
needed, one in the middle that keeps trials packed in the channels.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tuning.core import hydro


class Through(nn.Module):
    """A first trainable layer, then the function or layer under test."""

    def __init__(self, first, then):
        super().__init__()
        self.first = first
        self.layer = then if isinstance(then, nn.Module) else None
        self.function = None if isinstance(then, nn.Module) else then

    def forward(self, x):
        x = self.first(x)
        return self.layer(x) if self.layer is not None else self.function(x)


def flat():
    return nn.Linear(6, 8), torch.randn(5, 6)


def sequence():
    return nn.Linear(6, 8), torch.randn(3, 4, 6)


def line():
    return nn.Conv1d(2, 4, 1), torch.randn(3, 2, 9)


def image():
    return nn.Conv2d(2, 4, 1), torch.randn(3, 2, 6, 6)


def volume():
    return nn.Conv3d(1, 4, 1), torch.randn(2, 1, 4, 4, 4)


LAYERS = {
    "Linear": (flat, lambda: nn.Linear(8, 3)),
    "Linear on sequences": (sequence, lambda: nn.Linear(8, 3, bias=False)),
    "Bilinear by vmap": (flat, lambda: Twice(nn.Bilinear(8, 8, 3))),
    "Conv1d": (line, lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)),
    "Conv2d": (image, lambda: nn.Conv2d(4, 6, 3, dilation=2, bias=False)),
    "Conv2d reflect": (image, lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")),
    "Conv2d same": (image, lambda: nn.Conv2d(4, 4, 4, padding="same")),
    "Conv2d depthwise": (image, lambda: nn.Conv2d(4, 8, 3, groups=4)),
    "Conv3d": (volume, lambda: nn.Conv3d(4, 2, 2)),
    "ConvTranspose1d": (line, lambda: nn.ConvTranspose1d(4, 6, 3, stride=2)),
    "ConvTranspose2d": (image, lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2)),
    "ConvTranspose3d": (volume, lambda: nn.ConvTranspose3d(4, 2, 2)),
    "BatchNorm1d flat": (flat, lambda: nn.BatchNorm1d(8)),
    "BatchNorm1d": (line, lambda: nn.BatchNorm1d(4, affine=False)),
    "BatchNorm2d": (image, lambda: nn.BatchNorm2d(4, momentum=None)),
    "BatchNorm2d untracked": (image, lambda: nn.BatchNorm2d(4, track_running_stats=False)),
    "BatchNorm3d": (volume, lambda: nn.BatchNorm3d(4)),
    "InstanceNorm2d": (image, lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
    "LayerNorm": (sequence, lambda: nn.LayerNorm(8)),
    "LayerNorm without bias": (sequence, lambda: nn.LayerNorm((4, 8), bias=False)),
    "RMSNorm": (sequence, lambda: nn.RMSNorm(8)),
    "GroupNorm": (image, lambda: nn.GroupNorm(2, 4)),
    "GroupNorm flat": (flat, lambda: nn.GroupNorm(2, 8)),
    "LocalResponseNorm": (image, lambda: nn.LocalResponseNorm(2)),
    "PReLU one": (sequence, lambda: nn.PReLU()),
    "PReLU channels": (image, lambda: nn.PReLU(4)),
    "GLU": (sequence, lambda: nn.GLU(1)),
    "Softmax": (image, lambda: nn.Softmax(1)),
    "Softmax2d": (image, lambda: nn.Softmax2d()),
    "LogSoftmax": (flat, lambda: nn.LogSoftmax(dim=-1)),
    "MaxPool1d": (line, lambda: nn.MaxPool1d(2, padding=1)),
    "MaxPool2d": (image, lambda: nn.MaxPool2d(3, stride=2, ceil_mode=True)),
    "MaxPool3d": (volume, lambda: nn.MaxPool3d(2)),
    "AvgPool2d": (image, lambda: nn.AvgPool2d(2, count_include_pad=False)),
    "LPPool2d": (image, lambda: nn.Sequential(nn.Sigmoid(), nn.LPPool2d(2, 2))),
    "AdaptiveAvgPool1d": (line, lambda: nn.AdaptiveAvgPool1d(3)),
    "AdaptiveAvgPool2d": (image, lambda: nn.AdaptiveAvgPool2d((2, None))),
    "AdaptiveMaxPool2d": (image, lambda: nn.AdaptiveMaxPool2d(2)),
    "Upsample": (image, lambda: nn.Upsample(scale_factor=2, mode="bilinear")),
    "ZeroPad2d": (image, lambda: nn.ZeroPad2d(1)),
    "ReflectionPad1d": (line, lambda: nn.ReflectionPad1d(2)),
    "PixelShuffle": (image, lambda: nn.PixelShuffle(2)),
    "ChannelShuffle": (image, lambda: nn.ChannelShuffle(2)),
    "Unfold": (image, lambda: nn.Unfold(2)),
    "Flatten": (image, lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3))),
    "Flatten some": (image, lambda: nn.Flatten(2)),
    "Unflatten": (flat, lambda: nn.Unflatten(1, (2, 4))),
    "MultiheadAttention": (sequence, lambda: Own(nn.MultiheadAttention(8, 2, batch_first=True))),
    "MultiheadAttention time first": (sequence, lambda: Own(nn.MultiheadAttention(8, 4, bias=False))),
    "MultiheadAttention other widths": (
        sequence,
        lambda: Own(nn.MultiheadAttention(8, 2, kdim=8, vdim=8, batch_first=True)),
    ),
    "TransformerEncoderLayer": (
        sequence,
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", norm_first=True),
    ),
    "TransformerDecoderLayer": (
        sequence,
        lambda: Twice(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)),
    ),
    "LSTM": (sequence, lambda: First(nn.LSTM(8, 5, num_layers=2, bidirectional=True))),
    "LSTM projected": (sequence, lambda: First(nn.LSTM(8, 5, proj_size=3, batch_first=True))),
    "GRU": (sequence, lambda: First(nn.GRU(8, 5, batch_first=True))),
    "RNN": (sequence, lambda: First(nn.RNN(8, 5, bias=False))),
    "LSTMCell": (flat, lambda: First(nn.LSTMCell(8, 5))),
    "GRUCell": (flat, lambda: nn.GRUCell(8, 5)),
    "RNNCell": (flat, lambda: nn.RNNCell(8, 5, nonlinearity="relu")),
    "weight norm by vmap": (flat, lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 3))),
    **{
        f"activation {kind.__name__}": (image, kind)
        for kind in (
            *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh),
            *(nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.LogSigmoid),
            *(nn.Softshrink, nn.Hardshrink, nn.Tanhshrink),
        )
    },
}


class Own(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x, x)[0]


class Twice(nn.Module):
    """A layer of two inputs, given the same one."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x)


class First(nn.Module):
    """The output of a recurrent layer without its state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


FUNCTIONS = {
    "arithmetic": (image, lambda x: (2 - x) * x / (1 + x**2) - (-x)),
    "in place": (image, lambda x: x.mul(2).add_(1).relu_()),
    "augmented": (image, lambda x: _augmented(x)),
    "mean of space": (image, lambda x: x.mean((2, 3), keepdim=True) + x),
    "mean of channels": (image, lambda x: x.mean(1)),
    "whole sum": (image, lambda x: x.sum() + x.mean() + x.max() + x.std()),
    "extremes": (image, lambda x: x.max(dim=1)[0] + x.min(1).values + x.amax((2, 3), keepdim=True)[:, 0]),
    "argmax": (image, lambda x: x.argmax(1)),
    "where": (image, lambda x: torch.where(x > 0, x, x * 0.1)),
    "masked": (sequence, lambda x: x.masked_fill(torch.ones(4, 8).tril() == 0, -1.0)),
    "clamp": (image, lambda x: x.clamp(-0.5, max=0.5) + torch.clip(x, 0, 1)),
    "broadcast": (image, lambda x: x * torch.arange(6.0) + torch.ones(4, 1, 1)),
    "lower ranks": (sequence, lambda x: x + x[:, 0, :].unsqueeze(1) + x[0]),
    "view": (image, lambda x: x.view(x.size(0), -1)),
    "reshape": (image, lambda x: x.reshape(x.shape[0], 2, 2, *x.shape[2:]).flatten(1, 2)),
    "permute": (image, lambda x: x.permute(0, 2, 3, 1)),
    "transposes": (image, lambda x: x.transpose(2, 3).transpose(1, -1).movedim(1, 2)),
    "squeeze": (image, lambda x: x[:, :1].squeeze(1).unsqueeze(-1).unsqueeze(1).squeeze()),
    "expand": (sequence, lambda x: x[:, :1].expand(-1, 5, -1) + x[:1, :1].expand(3, 5, 8)),
    "repeat": (sequence, lambda x: x.repeat(1, 2, 1)),
    "cat of channels": (image, lambda x: torch.cat([x, x * 2], 1)),
    "cat of space": (image, lambda x: torch.cat([x, x.flip(3)], dim=-1)),
    "cat with shared": (image, lambda x: torch.cat([x, torch.zeros(3, 1, 6, 6)], 1)),
    "stack": (sequence, lambda x: torch.stack([x, x + 1], dim=1)),
    "chunk": (sequence, lambda x: x.chunk(2, -1)[0] * x.split(4, dim=2)[1]),
    "unbind": (sequence, lambda x: x.unbind(1)[2] + x.unbind()[0][0]),
    "slices": (image, lambda x: x[:, 1:, ::2, -2:] + x[:, :1, ..., :2].mean(2, keepdim=True)),
    "index": (sequence, lambda x: x[:, torch.tensor([2, 0])] + x[:, -1, None]),
    "two indices by vmap": (sequence, lambda x: x[torch.tensor([0, 1]), torch.tensor([1, 2])]),
    "matmul": (sequence, lambda x: torch.matmul(x, x.transpose(1, 2)).softmax(-1) @ x),
    "matmul with vector by vmap": (sequence, lambda x: x @ x[0, 0]),
    "bmm": (sequence, lambda x: torch.bmm(x, x.mT)),
    "einsum by vmap": (sequence, lambda x: torch.einsum("bij,bkj->bik", x, x)),
    "cumsum": (sequence, lambda x: x.cumsum(1) + x.softmax(0)),
    "norms": (sequence, lambda x: F.normalize(x, dim=-1) + F.layer_norm(x, (8,))),
    "group norm": (image, lambda x: F.group_norm(x, 2)),
    "interpolate": (image, lambda x: F.interpolate(x, scale_factor=0.5, mode="nearest")),
    "pads": (image, lambda x: F.pad(F.pad(x, (1, 0, 2, 1)), (0, 0, 0, 0, 1, 0))),
    "pools": (image, lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 3)),
    "attention": (sequence, lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "attention of heads": (
        sequence,
        lambda x: F.scaled_dot_product_attention(*[x.view(3, 4, 2, 4).transpose(1, 2)] * 3, scale=0.3),
    ),
    "triangle": (sequence, lambda x: x.tril() + x.triu(1)),
    "types": (sequence, lambda x: x.double().float() + (x > 0).to(x.dtype)),
    "topk by vmap": (sequence, lambda x: x.topk(3, dim=-1)[0]),
    "logsumexp": (sequence, lambda x: x.logsumexp(-1) + torch.var(x, 2)),
    "detach": (sequence, lambda x: x * x.detach()),
}


def _augmented(x):
    x += 1
    x *= 2
    return x


CASES = {**LAYERS, **{f"function {name}": case for name, case in FUNCTIONS.items()}}


def models_of(first, make, count):
    found = []
    for _ in range(count):
        layer = copy.deepcopy(first)
        layer.reset_parameters()
        found.append(Through(layer, make))
    return found


@pytest.mark.parametrize("name", CASES)
def test_layer_is_the_same_fused_and_alone_and_for_any_number_of_trials(name):
    inputs, make = CASES[name]
    first, example = inputs()
    models = [models_of(first, make() if name in LAYERS else make, 1)[0] for _ in range(3)]
    fused = hydro.fuse(models, example).train()
    batch = torch.randn_like(example)
    _backward(fused(batch))
    for index, model in enumerate(models):
        model.train()
        _backward(model(batch))
        grads = dict(fused.named_parameters())
        for key, parameter in model.named_parameters():
            found = grads[key].grad
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            found = torch.zeros_like(parameter) if found is None else found[index]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5 * _steepest(model))
        buffers = dict(fused.named_buffers())
        for key, buffer in model.named_buffers():
            torch.testing.assert_close(buffers[key][index], buffer, rtol=1e-5, atol=1e-6)
    _same_outputs(fused.eval(), models, batch)
    single, _ = hydro.defuse(fused, None, [1])
    torch.testing.assert_close(single(batch)[0], fused(batch)[1], rtol=1e-5, atol=1e-6)


def _steepest(model):
    """The largest gradient: a bias before a norm has none but rounding, next to it."""
    return max([1.0, *(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None)])


def _backward(output):
    if output.requires_grad:
        (output * torch.cos(output.detach())).sum().backward()


def _same_outputs(fused, models, batch):
    outputs = fused(batch)
    for index, model in enumerate(models):
        torch.testing.assert_close(outputs[index], model.eval()(batch), rtol=1e-5, atol=1e-5)


def test_generated_code_of_a_convolution_keeps_trials_in_the_channels():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1)
    )
    fused = hydro.fuse([model, model], torch.randn(2, 1, 8, 8)).train()
    assert fused.code.count("f_first_from_packed(") == 1
    assert "packed_from_first" not in fused.code
    assert "relu_(" in fused.code
