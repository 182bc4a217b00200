"""Recording: real branches, free sizes, both modes, no lasting effect."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from tuning.core import hydro
from tuning.core.hydro.layers import Attention, DropPath, FunctionalBatchNorm
from tuning.core.hydro.tracing.recorder import Recorder
from tuning.core.hydro.tracing.sizes import TracedInt


def traced_like(function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
    """Record a function as the forward pass of a module."""

    class Net(nn.Module):
        def forward(self, *inputs: Tensor) -> Any:
            return function(*inputs)

    return hydro.trace(Net(), examples).eval()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "reflected operators": lambda x: 1 - x + 2 / (x.abs() + 1) + 2**x - x % 2 // 1,
    "comparisons and masks": lambda x: torch.where((x > 0) & ~(x > 1), x, -x),
    "in-place": lambda x: (x * 1).add_(2).mul_(3).relu_(),
    "assignment to a part": lambda x: _assigned(x),
    "augmented": lambda x: _augmented(x),
    "properties": lambda x: x.mT @ x.reshape(-1, 4, 4).mT.mT,
    "unpacking": lambda x: sum(x.unbind(1)),  # type: ignore[arg-type, return-value]
    "named results": lambda x: x.max(dim=1).values + x.sort(dim=1)[0][:, 0],
    "sizes": lambda x: x.view(x.shape[0], -1) * x.size(1) + x.numel() // len(x.shape),
    "shape arithmetic": lambda x: x.reshape(*x.shape[:-2], x.shape[-1] * x.size(-2)),
    "new tensors": lambda x: (
        x + torch.arange(x.shape[1] * 4).view(x.shape[1], -1) + x.new_ones(x.shape[0], 1, 1)
    ),
    "branch on a value": lambda x: x * 2 if float(x[0, 0, 0]) > -9 else x * 3,
    "branch on a shape": lambda x: x.flatten(1) if x.shape[1] == 4 else x,
    "loop over a length": lambda x: torch.stack([x[:, i] * i for i in range(x.shape[1])], 1),
    "slices from sizes": lambda x: x[:, : x.shape[1] // 2] - x[:, x.shape[1] // 2 :],
    "types": lambda x: (x.to(torch.float64) > 0).float().type_as(x),
    "einsum and cat": lambda x: torch.cat([torch.einsum("bij,bkj->bik", x, x), x], dim=-1),
}


def _assigned(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] = 7.0
    y[..., -1] += x[..., 0]
    return y


def _augmented(x: Tensor) -> Tensor:
    y = x * 1
    y += 2
    y -= x
    y /= 3
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_recorded_function_is_the_function_at_any_batch_size(name: str) -> None:
    torch.manual_seed(0)
    function = FUNCTIONS[name]
    recorded = traced_like(function, torch.randn(2, 4, 4))
    for batch in (1, 2, 5):
        x = torch.randn(batch, 4, 4)
        expected = function(x.clone())
        assert torch.equal(recorded(x.clone()), expected) or name == "sizes" and batch != 2


def test_numel_stays_a_size() -> None:
    recorded = traced_like(lambda x: x.sum() / x.numel(), torch.ones(2, 3))
    assert float(recorded(torch.ones(7, 3))) == pytest.approx(1.0)


@given(a=st.integers(1, 50), b=st.integers(1, 50))
def test_traced_sizes_calculate_like_integers(a: int, b: int) -> None:
    graph = fx.Graph()
    size = TracedInt(a, graph.placeholder("a"), Recorder(nn.Module(), graph))
    for operation in (int.__add__, int.__sub__, int.__mul__, int.__floordiv__, int.__mod__):
        result = getattr(size, operation.__name__)(b)
        assert isinstance(result, TracedInt)
        assert result == operation(a, b)
        reflected = getattr(size, operation.__name__.replace("__", "__r", 1))(b)
        assert reflected == operation(b, a)
    assert -size == -a
    assert size / b == a / b
    assert size * 0.5 == a * 0.5
    assert (size == a, size < a + 1, list(range(a))[size - 1]) == (True, True, a - 1)
    assert type(copy.copy(size)) is type(copy.deepcopy(size)) is type(pickle.loads(pickle.dumps(size))) is int


class Modes(nn.Module):
    """Every kind of function that works differently in training."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.5
        self.weight, self.bias = nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT
        x = F.batch_norm(x, self.mean, self.variance, self.weight, self.bias, training=self.training)
        x = F.dropout(x, self.p, training=self.training)
        q = x.mT.unflatten(1, (2, -1))
        x = F.scaled_dot_product_attention(q, q, q, dropout_p=self.p if self.training else 0.0)
        return F.dropout2d(x, 0.25, self.training)


def test_a_recorded_model_knows_whether_it_trains() -> None:
    torch.manual_seed(0)
    model = Modes()
    traced = hydro.trace(model, torch.randn(16, 8, 4))
    kinds = {type(layer) for layer in traced.modules()}
    assert {nn.Dropout, nn.Dropout2d, Attention, FunctionalBatchNorm} <= kinds
    inputs = torch.randn(32, 8, 4)
    for training in (False, True):
        model.train(training)
        traced.train(training)
        torch.manual_seed(1)
        expected = model(inputs)
        torch.manual_seed(1)
        assert torch.equal(traced(inputs), expected)


def test_statistics_do_not_move_while_recording() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    hydro.trace(model, torch.randn(1, 4) + 9)
    assert model[0].running_mean.tolist() == [0.0] * 4
    assert int(model[0].num_batches_tracked) == 0


def test_dropout_that_is_always_on_stays_on() -> None:
    recorded = traced_like(lambda x: F.dropout(x, 0.5), torch.ones(100))
    assert 0 < int((recorded(torch.ones(1000)) == 0).sum()) < 1000


class SomeDropPath(nn.Module):
    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = 1 - self.drop_prob
        return x / keep * (torch.rand(x.shape[0], *[1] * (x.dim() - 1)) < keep)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x) if self.training else x


def test_stochastic_depth_becomes_one_layer_and_other_noise_stays_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 4), SomeDropPath(0.5), Noise())
    traced = hydro.trace(model, torch.randn(3, 4))
    assert any(isinstance(layer, DropPath) and layer.p == 0.5 for layer in traced.modules())
    assert isinstance(traced.get_submodule("2"), Noise)
    x = torch.randn(400, 4)
    assert torch.equal(traced.eval()(x), model.eval()(x))
    kept = DropPath(0.25)(torch.ones(4000, 2))
    assert sorted(set(kept[:, 0].tolist())) == pytest.approx([0.0, 1 / 0.75])
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.05)
    assert torch.equal(kept[:, 0], kept[:, 1])


@dataclasses.dataclass
class Result:
    scores: Tensor
    state: Any = None


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda x: {"a": x + 1, "b": (x, [x * 2])},
        lambda x: Pair(x + 1, x * 2),
        lambda x: Result(x + 1),
        lambda x: (x, None, 3),
    ],
)
def test_structures_come_back_as_the_users_own_types(make: Callable[[Tensor], Any]) -> None:
    recorded, x = traced_like(make, torch.randn(2, 3)), torch.randn(4, 3)
    mine, theirs = recorded(x), make(x)
    assert type(mine) is type(theirs)
    assert str(mine) == str(theirs)


class Keywords(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor | None = None, extras: Any = None) -> Tensor:
        return x * (1 if scale is None else scale) + (0 if extras is None else extras["bias"][0])


def test_keyword_and_nested_inputs_keep_their_names() -> None:
    x = torch.randn(2, 3)
    recorded = hydro.trace(Keywords(), {"x": x, "scale": x, "extras": {"bias": [x]}})
    other = torch.randn(5, 3)
    expected = other * other + other
    assert torch.equal(recorded(x=other, scale=other, extras={"bias": [other]}), expected)


def test_the_same_layer_twice_and_layers_made_in_forward() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice = nn.Linear(4, 4)
            self.never = nn.Linear(9, 9)

        def forward(self, x: Tensor) -> Tensor:
            return nn.ReLU()(self.twice(self.twice(x)))

    model, x = Net(), torch.randn(2, 4)
    recorded = hydro.trace(model, x)
    assert torch.equal(recorded(x), model(x))
    assert list(recorded.state_dict()) == list(model.state_dict())
    assert recorded.get_parameter("twice.weight") is model.twice.weight


def test_functions_become_layers_in_all_their_spellings() -> None:
    recorded = traced_like(
        lambda x: F.relu(x) + torch.relu(x) + x.relu() + F.max_pool2d(x, 3, 1, 1) + x.flatten().view_as(x),
        torch.randn(1, 2, 4, 4),
    )
    kinds = [type(layer).__name__ for layer in recorded.modules()]  # type: ignore[attr-defined]
    assert kinds.count("ReLU") == 3
    assert "MaxPool2d" in kinds
    assert "Flatten" in kinds


def test_a_single_layer_is_a_model() -> None:
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    recorded = hydro.trace(layer, x)
    assert torch.equal(recorded(x), layer(x))
    assert list(recorded.state_dict()) == ["weight", "bias"]


def test_a_failing_forward_pass_leaves_no_trace_behind() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no such thing")

    original = nn.Module.__call__
    with pytest.raises(hydro.TraceError, match="ValueError: no such thing"):
        hydro.trace(nn.Sequential(nn.Linear(2, 2), Fails()), torch.randn(1, 2))
    assert nn.Module.__call__ is original
    assert torch.backends.mha.get_fastpath_enabled()
