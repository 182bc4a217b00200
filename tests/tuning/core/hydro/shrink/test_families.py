"""Every family of models shrinks unmodified, and what must not change does not."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core import hydro

pytestmark = pytest.mark.filterwarnings("ignore::tuning.core.hydro.errors.HydroWarning")
IMAGE, SERIES, TOKENS = (3, 8, 8), (2, 24), 20


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(192, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        nn.LogSoftmax(-1),
    )


class ResidualNet(nn.Module):
    """Two residual blocks, the second with a strided shortcut."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.norm = norm(32)
        self.one = nn.Sequential(nn.Conv2d(32, 32, 3, padding="same", bias=False), norm(32), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(32, 64, 3, stride=2, padding=1), norm(64))
        self.shortcut = nn.Conv2d(32, 64, 1, stride=2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        x = x + self.one(x)
        x = F.relu(self.two(x) + self.shortcut(x))
        x = F.adaptive_avg_pool2d(x, 1)
        return self.head(torch.flatten(x, 1))


class PaddedShortcut(nn.Module):
    """The CIFAR ResNet's shortcut without weights: subsample, and pad the channels with zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.body = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = self.body(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 16, 16))
        return self.head(x.mean(dim=(2, 3)))


class Depthwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.depthwise = nn.Conv2d(32, 64, 3, padding=1, groups=32)
        self.pointwise = nn.Conv2d(64, 48, 1)
        self.squeeze = nn.Conv2d(48, 40, 1)
        self.excite = nn.Conv2d(40, 48, 1)
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.depthwise(F.hardswish(self.stem(x))))
        x = self.pointwise(x)
        gate = torch.sigmoid(self.excite(F.silu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.head((x * gate).mean((2, 3)))


class Grouped(nn.Module):
    """ResNeXt's grouped convolution and ShuffleNet's shuffle of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 1)
        self.grouped = nn.Conv2d(64, 64, 3, padding=1, groups=16)
        self.head = nn.Conv2d(64, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.grouped(self.stem(x))
        n, c, h, w = x.shape
        x = x.view(n, 16, c // 16, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.head(x).mean((2, 3))


class Dense(nn.Module):
    """DenseNet's growing concatenation, with uneven widths."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 33, 3, padding=1)
        self.steps = nn.ModuleList()
        width = 33
        for _ in range(2):
            self.steps.append(
                nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 35, 3, padding=1))
            )
            width += 35
        self.head = nn.Linear(width * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for step in self.steps:
            x = torch.cat([x, step(x)], 1)
        return self.head(F.avg_pool2d(x, 2).flatten(1))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 32, 3, padding=1)
        self.deep = nn.Conv2d(32, 64, 3, padding=1)
        self.up = nn.ConvTranspose2d(64, 32, 2, stride=2)
        self.shuffle = nn.Sequential(nn.Conv2d(64, 64, 1), nn.PixelShuffle(2), nn.MaxPool2d(2))
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        top = F.gelu(self.down(x))
        deep = F.gelu(self.deep(F.max_pool2d(top, 2)))
        return self.out(self.shuffle(torch.cat([top, self.up(deep)], dim=1)))


class Series(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(2, 32, 3, padding=1), nn.BatchNorm1d(32), nn.PReLU(32), nn.Conv1d(32, 48, 3, padding=1),
            nn.GroupNorm(12, 48), nn.ELU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Dropout(0.1),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(192, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module], *, both: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 32, padding_idx=3)
        self.cells = kind(32, 48, num_layers=2, batch_first=True, bidirectional=both)
        self.head = nn.Linear(96 if both else 48, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.cells(self.embed(x))
        return self.head(out)


class GivenState(nn.Module):
    """An LSTM that makes its first state in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 32)
        self.cells = nn.LSTM(32, 48, batch_first=True, proj_size=24)
        self.cell = nn.GRUCell(24, 40)
        self.head = nn.Linear(40, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        h, c = torch.zeros(1, x.shape[0], 24), torch.zeros(1, x.shape[0], 48)
        out, _ = self.cells(self.embed(x), (h, c))
        state = torch.zeros(x.size(0), 40)
        for t in range(3):
            state = self.cell(out[:, t], state)
        return self.head(state)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 96, dropout=0.1, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)
        table = torch.zeros(32, 64)
        angle = torch.arange(32)[:, None] * torch.exp(torch.arange(0, 64, 2) * (-math.log(1e4) / 64))
        table[:, 0::2], table[:, 1::2] = torch.sin(angle), torch.cos(angle)
        self.register_buffer("positions", table)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) * math.sqrt(64) + self.positions[: x.size(1)]
        return self.head(self.encoder(h).mean(1))


class Llama(nn.Module):
    """Rotary positions, grouped queries by expansion, RMSNorm, gated feed-forward, tied head."""

    def __init__(self, width: int = 64, heads: int = 8, groups: int = 2, head: int = 8) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, head
        self.embed = nn.Embedding(TOKENS, width)
        self.norm = nn.RMSNorm(width)
        self.q = nn.Linear(width, heads * head, bias=False)
        self.k = nn.Linear(width, groups * head, bias=False)
        self.v = nn.Linear(width, groups * head, bias=False)
        self.o = nn.Linear(heads * head, width, bias=False)
        self.gate = nn.Linear(width, 2 * 96)
        self.down = nn.Linear(96, width)
        self.head = nn.Linear(width, TOKENS, bias=False)
        self.head.weight = self.embed.weight
        inverse = 1.0 / 100 ** (torch.arange(0, head, 2).float() / head)
        self.register_buffer("inverse", inverse, persistent=False)

    def rotated(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + turned * sin

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        b, t, _ = x.shape
        h = self.norm(x)
        q = self.q(h).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(b, t, self.groups, self.size).transpose(1, 2)
        v = self.v(h).view(b, t, self.groups, self.size).transpose(1, 2)
        angle = torch.outer(torch.arange(t, device=x.device).float(), self.inverse)
        angle = torch.cat((angle, angle), dim=-1)
        q, k = (self.rotated(part, angle.cos(), angle.sin()) for part in (q, k))
        times = self.heads // self.groups
        k, v = (
            part[:, :, None].expand(b, self.groups, times, t, self.size).reshape(b, self.heads, t, self.size)
            for part in (k, v)
        )
        logits = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        logits = logits.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -1e9)
        mixed = (F.softmax(logits, dim=-1) @ v).transpose(1, 2).reshape(b, t, -1)
        x = x + self.o(mixed)
        up, gate = self.gate(x).chunk(2, dim=-1)
        return self.head(x + self.down(up * F.silu(gate)))


class PackedAttention(nn.Module):
    """Query, key and value in one weight, taken apart by a view, and by einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(6, 64)
        self.qkv = nn.Linear(64, 3 * 64)
        self.mix = nn.Parameter(torch.randn(64, 64) / 8)
        self.scale = nn.Parameter(torch.ones(64) * 0.1)
        self.cls = nn.Parameter(torch.zeros(1, 1, 64))
        self.head = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inp(x)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, 8, c // 8).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.einsum("bhqd,bhkd->bhqk", q, k).mul(8**-0.5).softmax(-1)
        out = torch.einsum("bhqk,bhkd->bqhd", weights, v).reshape(b, t, c)
        return self.head((x + self.scale * torch.einsum("btc,cd->btd", out, self.mix))[:, 0])


class Cross(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 64), nn.Linear(7, 48)
        self.attend = nn.MultiheadAttention(64, 4, kdim=48, vdim=48, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 3)

    def forward(self, x: Tensor, memory: Tensor) -> dict[str, Tensor]:
        keys = self.b(memory)
        out, _ = self.attend(self.a(x), keys, keys)
        return {"scores": self.head(self.norm(out)), "size": out.new_zeros(1)}


def images(n: int) -> Tensor:
    return torch.randn(n, *IMAGE)


def tokens(n: int) -> Tensor:
    return torch.randint(0, TOKENS, (n, 6))


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any]]] = {
    "MLP ending in log_softmax": (mlp, images),
    "residual CNN, BatchNorm": (ResidualNet, images),
    "residual CNN, GroupNorm": (lambda: ResidualNet(lambda c: nn.GroupNorm(8, c)), images),
    "channel-padding shortcut": (PaddedShortcut, images),
    "depthwise, squeeze and excite": (Depthwise, images),
    "grouped, channel shuffle": (Grouped, images),
    "dense, uneven widths": (Dense, images),
    "U-Net, transposed": (Unet, images),
    "Conv1d": (Series, lambda n: torch.randn(n, *SERIES)),
    "LSTM": (lambda: Recurrent(nn.LSTM), tokens),
    "GRU, both directions": (lambda: Recurrent(nn.GRU, both=True), tokens),
    "LSTM with given state, cell": (GivenState, tokens),
    "TransformerEncoder": (Encoder, tokens),
    "rotary, grouped queries, tied": (Llama, tokens),
    "packed attention, einsum": (PackedAttention, lambda n: torch.randn(n, 5, 6)),
    "MultiheadAttention across": (Cross, lambda n: (torch.randn(n, 5, 5), torch.randn(n, 4, 7))),
}


def call(model: nn.Module, inputs: Any) -> Any:
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def first_tensor(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else next(iter(output.values()))


@pytest.fixture(params=FAMILIES, name="family")
def _family(request: pytest.FixtureRequest) -> tuple[nn.Module, Callable[[int], Any]]:
    torch.manual_seed(0)
    make, batch = FAMILIES[request.param]
    return make(), batch


def test_the_recorded_model_computes_what_the_model_computes(family: Any) -> None:
    model, batch = family
    traced = hydro.trace(model, batch(3))
    assert list(traced.state_dict()) == list(model.state_dict())
    for part in (model, traced):
        part.eval()
    other = batch(5)
    torch.testing.assert_close(call(traced, other), call(model, other), rtol=0, atol=0)


def test_a_surrogate_is_narrower_with_the_same_names_and_outputs(family: Any) -> None:
    model, batch = family
    surrogate = hydro.shrink(model, batch(3), scaling=4, min_width=2)
    assert list(surrogate.state_dict()) == list(model.state_dict())
    own, narrow = dict(model.named_parameters()), dict(surrogate.named_parameters())
    assert own.keys() == narrow.keys() == (hydro.rules_of(surrogate) or {}).keys()
    assert sum(p.numel() for p in narrow.values()) < 0.5 * sum(p.numel() for p in own.values())
    inputs = batch(5)
    output = first_tensor(call(surrogate, inputs))
    assert output.shape == first_tensor(call(model, inputs)).shape
    output.square().mean().backward()


def test_scaling_one_keeps_the_function_of_given_weights(family: Any) -> None:
    model, batch = family
    same = hydro.shrink(model, batch(3), scaling=1)
    same.load_state_dict(model.state_dict())
    for part in (model, same):
        part.eval()
    inputs = batch(4)
    torch.testing.assert_close(call(same, inputs), call(model, inputs), rtol=0, atol=0)
    assert {rule.lr_multiplier("sgd") for rule in (hydro.rules_of(same) or {}).values()} == {1.0}


def test_copies_and_pickles_keep_rules_names_and_function(family: Any) -> None:
    model, batch = family
    surrogate = hydro.shrink(model, batch(3), scaling=4, min_width=2).eval()
    inputs = batch(2)
    for twin in (copy.deepcopy(surrogate), pickle.loads(pickle.dumps(surrogate))):
        torch.testing.assert_close(call(twin, inputs), call(surrogate, inputs), rtol=0, atol=0)
        assert list(twin.state_dict()) == list(model.state_dict())
        assert hydro.rules_of(twin) == hydro.rules_of(surrogate)
        assert hydro.optimizer_family_of(twin) == "adam"


def test_a_surrogate_can_be_recorded_again(family: Any) -> None:
    model, batch = family
    surrogate = hydro.shrink(model, batch(3), scaling=4, min_width=2)
    again = hydro.trace(surrogate, batch(2))
    assert hydro.rules_of(again) == hydro.rules_of(surrogate)
    for part in (again, surrogate):
        part.eval()
    inputs = batch(3)
    torch.testing.assert_close(call(again, inputs), call(surrogate, inputs), rtol=0, atol=0)
