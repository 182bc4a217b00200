"""A fused trial is the trial trained alone: every family of models, weights, buffers and random masks."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tuning.core import hydro

CLASSES = 5


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.branch = nn.Conv2d(4, 4, 3, padding="same", padding_mode="circular")
        self.group = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        x = x + self.group(self.branch(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(1, 6, 1, bias=False)
        self.depth = nn.Conv2d(6, 6, 3, groups=6, stride=2)
        self.norm = nn.BatchNorm2d(6, momentum=None)
        self.squeeze = nn.Linear(6, 6)
        self.head = nn.Conv2d(6, CLASSES, 1)

    def forward(self, x):
        x = F.hardswish(self.norm(self.depth(self.expand(x))))
        gate = torch.sigmoid(self.squeeze(x.mean(dim=[2, 3])))
        x = x * gate[:, :, None, None]
        return self.head(x).amax((-2, -1))


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 6, 5)
        self.norm = nn.BatchNorm1d(6)
        self.up = nn.ConvTranspose1d(6, 4, 3, stride=2, groups=2)
        self.dense = nn.Linear(4 * 25, 8)
        self.flat_norm = nn.BatchNorm1d(8)
        self.slope = nn.PReLU(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = F.gelu(self.norm(self.first(x)))
        x = self.up(F.max_pool1d(x, 1))
        x = self.slope(self.flat_norm(self.dense(x.reshape(x.size(0), -1))))
        return self.head(x)


class Tied(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, 8, padding_idx=1)
        self.positions = nn.Parameter(torch.randn(6, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("future", torch.ones(6, 6).triu(1).bool())

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions[: tokens.size(1)]
        return self.head(self.encoder(x, mask=self.future))


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, **options):
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, 4)
        self.layers = kind(4, 6, num_layers=2, batch_first=True, **options)
        width = 12 if options.get("bidirectional") else 6
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.embedding(tokens))[0]))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(CLASSES, 8) * 0.3)
        self.query = nn.Linear(8, 8)
        self.memory = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        x = F.embedding(tokens, self.table)
        q = self.query(x).view(x.size(0), x.size(1), 2, 4).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)
        mixed, weights = self.memory(x, x + 1.0, x)
        return self.out(torch.cat([mixed, x], -1)[..., :8] + weights.sum(-1, keepdim=True))


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Linear(12, 12, bias=False),
        nn.LayerNorm(12),
        nn.Tanh(),
        nn.Linear(12, CLASSES),
        nn.LogSoftmax(-1),
    )


def images():
    return torch.randn(6, 1, 8, 8)


def lines():
    return torch.randn(6, 1, 16)


def tokens():
    return torch.randint(0, CLASSES, (4, 6))


FAMILIES = {
    "mlp": (mlp, images),
    "residual": (Residual, images),
    "depthwise": (Depthwise, images),
    "conv1d": (Line, lines),
    "tied transformer": (Tied, tokens),
    "lstm": (Recurrent, tokens),
    "lstm both ways, dropout": (lambda: Recurrent(bidirectional=True, dropout=0.2), tokens),
    "gru": (lambda: Recurrent(nn.GRU, bias=False), tokens),
    "rnn": (lambda: Recurrent(nn.RNN, nonlinearity="relu"), tokens),
    "attention": (Attending, tokens),
}


def batches_of(make, count):
    found = []
    for _ in range(count):
        inputs = make()
        target = (
            inputs.roll(1, -1) if inputs.dtype == torch.int64 else torch.randint(0, CLASSES, (len(inputs),))
        )
        found.append((inputs, target))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_trial_ends_where_it_ends_alone(family, train_alone, train_fused, same):
    make, inputs = FAMILIES[family]
    models = [make() for _ in range(3)]
    batches = batches_of(inputs, 8)
    lrs, seeds = [0.05, 0.02, 0.05], [7, 8, 9]
    fused = hydro.fuse(models, batches[0][0], seeds=seeds).train()
    optimizer = hydro.optimizer(torch.optim.SGD, fused, lr=lrs, momentum=0.9, weight_decay=[0.0, 1e-2, 1e-3])
    train_fused(fused, optimizer, batches)
    for index, model in enumerate(models):
        decay = [0.0, 1e-2, 1e-3][index]
        alone = train_alone(model, batches, seeds[index], lr=lrs[index], momentum=0.9, weight_decay=decay)
        same(hydro.extract(fused, index), alone)


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_have_the_trial_dimension_first_for_any_batch_size(family):
    make, inputs = FAMILIES[family]
    models = [make().eval() for _ in range(2)]
    fused = hydro.fuse(models, inputs())
    larger = torch.cat([inputs(), inputs()])[:-1]
    outputs = fused(larger)
    assert outputs.shape[:2] == (2, len(larger))
    for index, model in enumerate(models):
        torch.testing.assert_close(outputs[index], model(larger), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.SGD, {"lr": [0.1, 0.05], "momentum": [0.9, 0.0], "nesterov": [True, False]}),
        (torch.optim.Adam, {"lr": [1e-3, 3e-3], "betas": [(0.9, 0.99), (0.8, 0.9)], "weight_decay": 1e-2}),
        (torch.optim.AdamW, {"lr": [1e-3, 3e-3], "weight_decay": [0.1, 0.0], "amsgrad": [True, False]}),
    ],
)
def test_optimizers_schedules_and_clipping_are_those_of_the_trial_alone(
    kind, settings, train_alone, train_fused, same
):
    models = [mlp() for _ in range(2)]
    batches = batches_of(images, 30)
    gammas = [0.5, 0.9]
    fused = hydro.fuse(models, batches[0][0], seeds=[1, 2]).train()
    optimizer = hydro.optimizer(kind, fused, **settings)
    hydro.scheduler(torch.optim.lr_scheduler.StepLR, optimizer, step_size=5, gamma=gammas)
    train_fused(fused, optimizer, batches, clip=0.5)
    for index, model in enumerate(models):
        own = {name: value[index] if isinstance(value, list) else value for name, value in settings.items()}

        def schedule(opt, gamma=gammas[index]):
            return torch.optim.lr_scheduler.StepLR(opt, step_size=5, gamma=gamma)

        alone = train_alone(model, batches, index + 1, kind, schedule, clip=0.5, **own)
        same(hydro.extract(fused, index), alone)


def test_several_inputs_and_structured_outputs():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)

        def forward(self, left, right=None, *, scale=1.0):
            both = self.left(left) * scale + self.right(right)
            return {"sum": both, "parts": (both.softmax(1), left)}

    models = [Pair(), Pair()]
    example = {"left": torch.randn(5, 3), "right": torch.randn(5, 2), "scale": 2.0}
    fused = hydro.fuse(models, example)
    found = fused(example["left"], right=example["right"], scale=2.0)
    for index, model in enumerate(models):
        plain = model(**example)
        torch.testing.assert_close(found["sum"][index], plain["sum"])
        torch.testing.assert_close(found["parts"][0][index], plain["parts"][0])
        assert torch.equal(found["parts"][1][index], example["left"])
    with pytest.raises(hydro.FuseError, match="scale"):
        fused(example["left"], example["right"], scale=3.0)


def test_a_single_layer_is_a_model_too():
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    inputs = torch.randn(4, 3)
    fused = hydro.fuse(models, inputs)
    torch.testing.assert_close(fused(inputs)[1], models[1](inputs))
    assert hydro.extract(fused, 0).state_dict().keys() == models[0].state_dict().keys()


def test_fused_state_has_the_users_keys_with_trials_leading():
    models = [Residual() for _ in range(3)]
    fused = hydro.fuse(models, images())
    plain = models[0].state_dict()
    found = fused.state_dict()
    assert found.keys() == plain.keys()
    assert all(found[name].shape == (3, *tensor.shape) for name, tensor in plain.items())


def test_fuse_copies_its_models():
    models = [mlp(), mlp()]
    before = [{name: t.clone() for name, t in m.state_dict().items()} for m in models]
    fused = hydro.fuse(models, images())
    with torch.no_grad():
        for parameter in fused.parameters():
            parameter.add_(1.0)
    for model, state in zip(models, before, strict=True):
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_fused_modules_can_be_copied_and_pickled():
    import copy
    import io

    fused = hydro.fuse([mlp(), mlp()], images(), seeds=[3, 4]).train()
    inputs = images()
    buffer = io.BytesIO()
    torch.save(fused, buffer)
    buffer.seek(0)
    twins = [copy.deepcopy(fused), torch.load(buffer, weights_only=False)]
    expected = fused(inputs)
    for twin in twins:
        assert torch.equal(twin(inputs), expected)
