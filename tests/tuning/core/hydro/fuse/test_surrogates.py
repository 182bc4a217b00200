"""Shrunk models: a fused surrogate is the surrogate trained alone, width rules and all."""

import copy

import pytest
import torch
from torch import nn

from tuning.core import hydro


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.depth = nn.Conv2d(32, 32, 3, groups=32)
        self.mix = nn.Conv2d(32, 64, 1)
        self.group = nn.GroupNorm(4, 64)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.group(self.mix(self.depth(x))))
        return self.head(x.mean((2, 3)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.norm(self.encoder(self.embedding(tokens))))


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 5)
    )


def images():
    return torch.randn(6, 1, 8, 8), torch.randint(0, 5, (6,))


def text():
    tokens = torch.randint(0, 11, (4, 7))
    return tokens[:, :-1], tokens[:, 1:]


MODELS = {"mlp": (mlp, images), "cnn": (Convolutional, images), "tied transformer": (Tied, text)}
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 1e-3}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
}


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fused_surrogates_train_as_unfused_ones(family, name, train_fused, same, loss):
    make, batch = MODELS[family]
    kind, settings = OPTIMIZERS[name]
    data = [batch() for _ in range(8)]
    surrogates = [hydro.shrink(make(), data[0][0], scaling=4, optimizer=name) for _ in range(3)]
    rates = [0.05, 0.02, 0.05] if kind is torch.optim.SGD else [0.003, 0.001, 0.003]
    fused = hydro.fuse(surrogates, data[0][0], seeds=[1, 2, 3]).train()
    train_fused(fused, hydro.optimizer(kind, fused, lr=rates, **settings), data)
    for index, surrogate in enumerate(surrogates):
        alone = copy.deepcopy(surrogate).train()
        optimizer = hydro.optimizer(kind, alone, lr=rates[index], **settings)
        torch.manual_seed(index + 1)
        for inputs, target in data:
            optimizer.zero_grad()
            loss(alone(inputs), target).backward()
            optimizer.step()
        found = hydro.extract(fused, index)
        assert hydro.rules_of(found) == hydro.rules_of(surrogate)
        # Keys of attention have a bias whose gradient is rounding, which Adam blows up to full steps.
        same(found, alone, skip=("in_proj_bias",) if kind is torch.optim.AdamW else ())


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    pixels = {"pixel_values": torch.randn(2, 3, 32, 32)}
    ids = {"input_ids": torch.randint(0, 32, (2, 6)), "attention_mask": torch.ones(2, 6, dtype=torch.int64)}
    t = transformers
    options = {"bos_token_id": None, "eos_token_id": None}
    return {
        "gpt2": lambda: (
            t.GPT2LMHeadModel(
                t.GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, **options)
            ),
            ids,
        ),
        "bert": lambda: (
            t.BertForSequenceClassification(
                t.BertConfig(
                    vocab_size=32,
                    hidden_size=16,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    intermediate_size=32,
                )
            ),
            ids,
        ),
        "resnet": lambda: (
            t.ResNetForImageClassification(
                t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
            ),
            pixels,
        ),
        "swin": lambda: (
            t.SwinForImageClassification(
                t.SwinConfig(image_size=32, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4)
            ),
            pixels,
        ),
    }[name]()


@pytest.mark.parametrize("name", ["gpt2", "bert", "resnet", "swin"])
def test_hugging_face_models_can_be_fused(name):
    model, example = hugging_face(name)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    fused = hydro.fuse([model, twin], example).eval()
    found = fused(**example)
    for index, plain in enumerate((model.eval(), twin.eval())):
        expected = plain(**example)
        assert type(found) is type(expected)
        torch.testing.assert_close(found.logits[index], expected.logits, rtol=1e-4, atol=1e-5)
