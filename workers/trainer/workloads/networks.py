"""The networks of the bundled workloads; the only file here that imports torch when it is imported."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a shortcut; (N, C, H, W) in and out, halved by `stride`."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        y_NCHW = F.relu(self.norm1(self.conv1(x_NCHW)))
        return F.relu(self.norm2(self.conv2(y_NCHW)) + self.shortcut(x_NCHW))


class ResidualDigits(nn.Module):
    """Digits of (N, 1, 28, 28) to logits (N, 10): a stem, two residual blocks, global average."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.block1 = ResidualBlock(width, width, 1)
        self.block2 = ResidualBlock(width, 2 * width, 2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        x_NCHW = F.relu(self.norm(self.stem(x_NCHW)))
        x_NCHW = self.block2(self.block1(x_NCHW))
        return self.head(torch.flatten(self.pool(x_NCHW), 1))


def signal_classifier(width: int) -> nn.Module:
    """Signals of (N, 1, 40) to logits (N, 10): three strided convolutions with BatchNorm, a linear layer."""
    return nn.Sequential(
        nn.Conv1d(1, width, 5, stride=2, padding=2),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Conv1d(width, width, 3, stride=2, padding=1),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Conv1d(width, width, 3, stride=2, padding=1),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width * 5, 10),
    )


HEADS = 4


class CausalBlock(nn.Module):
    """A pre-norm transformer block: causal attention and a feed-forward layer; (N, L, D) in and out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.join = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x_NLD: Tensor) -> Tensor:
        h_NLD = self.norm1(x_NLD)
        q, k, v = (
            layer(h_NLD).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        a_NLD = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x_NLD = x_NLD + self.join(a_NLD)
        return x_NLD + self.down(F.gelu(self.up(self.norm2(x_NLD))))


class CharacterTransformer(nn.Module):
    """Characters of (N, L) to logits (N, L, symbols) for the next one."""

    def __init__(self, symbols: int, context: int, width: int, blocks: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.positions = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.Sequential(*(CausalBlock(width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols)

    def forward(self, codes_NL: Tensor) -> Tensor:
        x_NLD = self.symbols(codes_NL) + self.positions
        return self.head(self.norm(self.blocks(x_NLD)))
