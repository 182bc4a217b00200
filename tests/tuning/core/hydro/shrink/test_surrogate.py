"""What a surrogate is: sizes, roles, initial values and factors, against the table."""

import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core import hydro
from tuning.core.hydro.layers import Attention, Scale

pytestmark = pytest.mark.filterwarnings("ignore::tuning.core.hydro.errors.HydroWarning")


def mlp(width: int = 512) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.LayerNorm(width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def scales(module: nn.Module) -> list[Scale]:
    return [layer for layer in module.modules() if isinstance(layer, Scale)]


def test_inputs_and_classes_stay_and_every_width_is_divided() -> None:
    surrogate = hydro.shrink(mlp(), torch.randn(4, 64), scaling=8)
    assert shapes(surrogate) == {
        "0.weight": (64, 64), "0.bias": (64,), "2.weight": (64, 64), "2.bias": (64,),
        "3.weight": (64,), "3.bias": (64,), "5.weight": (10, 64), "5.bias": (10,),
    }  # fmt: skip


def test_roles_come_from_data_flow() -> None:
    rules = hydro.rules_of(hydro.shrink(mlp(), torch.randn(4, 64), scaling=8)) or {}
    assert {name: rule.role for name, rule in rules.items()} == {
        "0.weight": "input", "0.bias": "bias", "2.weight": "hidden", "2.bias": "bias",
        "3.weight": "norm", "3.bias": "bias", "5.weight": "output", "5.bias": "bias",
    }  # fmt: skip
    assert rules["5.bias"].lr_multiplier("sgd") == 1.0


def test_initial_values_are_pytorchs_at_target_width_corrected_by_the_table() -> None:
    torch.manual_seed(0)
    surrogate = hydro.shrink(mlp(), torch.randn(4, 64), scaling=8)
    values = {name: parameter.detach() for name, parameter in surrogate.named_parameters()}
    assert float(values["0.weight"].std()) == pytest.approx(1 / math.sqrt(3 * 64), rel=0.05)
    assert float(values["2.weight"].std()) == pytest.approx(math.sqrt(8 / (3 * 512)), rel=0.05)
    assert not values["5.weight"].any()
    assert not any(values[name].any() for name in values if name.endswith("bias"))
    assert bool((values["3.weight"] == 1).all())
    assert [(scale.factor, scale.reason) for scale in scales(surrogate)] == [(8.0, "output")]


def test_the_hydro_table_differs_where_the_paper_does() -> None:
    torch.manual_seed(0)
    surrogate = hydro.shrink(mlp(), torch.randn(4, 64), scaling=8, optimizer="sgd", parametrization="hydro")
    rules = hydro.rules_of(surrogate) or {}
    values = dict(surrogate.named_parameters())
    assert float(values["0.weight"].detach().std()) == pytest.approx(math.sqrt(8 / (3 * 64)), rel=0.05)
    assert rules["2.weight"].lr_multiplier("sgd") == 8.0
    assert rules["0.weight"].lr_multiplier("sgd") == rules["5.weight"].lr_multiplier("sgd") == 1 / 8


def test_the_standard_scheme_is_a_plain_narrow_model() -> None:
    torch.manual_seed(0)
    surrogate = hydro.shrink(mlp(), torch.randn(4, 64), scaling=8, parametrization="standard")
    assert {rule.lr_multiplier("adam") for rule in (hydro.rules_of(surrogate) or {}).values()} == {1.0}
    assert not scales(surrogate)
    assert dict(surrogate.named_parameters())["5.weight"].detach().std() > 0.04


def test_uneven_widths_round_up_and_the_real_ratio_counts() -> None:
    model = nn.Sequential(nn.Linear(6, 100), nn.ReLU(), nn.Linear(100, 90), nn.ReLU(), nn.Linear(90, 3))
    surrogate = hydro.shrink(model, torch.randn(2, 6), scaling=8)
    assert shapes(surrogate)["2.weight"] == (12, 13)
    rule = (hydro.rules_of(surrogate) or {})["2.weight"]
    assert (rule.fan_in_ratio, rule.fan_out_ratio) == pytest.approx((100 / 13, 90 / 12))
    assert [scale.factor for scale in scales(surrogate)] == pytest.approx([90 / 12])


def test_a_fractional_scaling_is_a_ratio_too() -> None:
    surrogate = hydro.shrink(mlp(96), torch.randn(2, 64), scaling=1.5)
    assert shapes(surrogate)["2.weight"] == (64, 64)


def test_depthwise_kernels_are_vectors_and_groups_shrink_before_their_width() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 64, 1),
        nn.Conv2d(64, 64, 3, groups=64),
        nn.Conv2d(64, 64, 1, groups=16),
        nn.Conv2d(64, 5, 1),
    )
    surrogate = hydro.shrink(model, torch.randn(2, 3, 6, 6), scaling=8)
    assert shapes(surrogate)["1.weight"] == (8, 1, 3, 3)
    assert shapes(surrogate)["2.weight"] == (8, 4, 1, 1)
    rules = hydro.rules_of(surrogate) or {}
    assert rules["1.weight"].role == "vector"
    assert (rules["2.weight"].fan_in_ratio, rules["2.weight"].fan_out_ratio) == (1.0, 8.0)
    layer = surrogate.get_submodule("2")
    assert (layer.groups, layer.in_channels) == (2, 8)


class Attend(nn.Module):
    def __init__(self, width: int, heads: int, *, written: bool = False) -> None:
        super().__init__()
        self.heads, self.written = heads, written
        self.inp, self.qkv, self.out = nn.Linear(5, width), nn.Linear(width, 3 * width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        parts = self.qkv(self.inp(x)).chunk(3, dim=-1)
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in parts)
        if self.written:
            mixed = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    ("heads", "size", "ratio"), [(16, (2, 16), 1.0), (8, (1, 32), 1.0), (4, (1, 32), 2.0), (2, (1, 32), 4.0)]
)
def test_heads_shrink_first_and_logits_follow_the_head_size(
    heads: int, size: tuple[int, int], ratio: float, written: bool
) -> None:
    torch.manual_seed(0)
    surrogate = hydro.shrink(Attend(256, heads, written=written), torch.randn(2, 4, 5), scaling=8)
    assert shapes(surrogate)["qkv.weight"] == (96, 32)
    target_factor = 1 / math.sqrt(256 // heads)
    if written:
        factor = math.prod(scale.factor for scale in scales(surrogate) if scale.reason == "attention")
        assert factor == pytest.approx(ratio)
    else:
        (attention,) = (layer for layer in surrogate.modules() if isinstance(layer, Attention))
        applied = attention.scale or 1 / math.sqrt(size[1])
        assert applied == pytest.approx(target_factor * ratio)


def test_a_tied_head_keeps_one_weight_that_learns_from_both_ends() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.place, self.mid = nn.Embedding(50, 64), nn.Embedding(9, 64), nn.Linear(64, 64)
            self.head = nn.Linear(64, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.mid(self.embed(x) + self.place(torch.arange(x.shape[1]))))

    torch.manual_seed(0)
    surrogate = hydro.shrink(Tied(), torch.randint(0, 50, (2, 9)), scaling=8)
    weight = surrogate.get_parameter("embed.weight")
    assert surrogate.get_parameter("head.weight") is weight
    rules = hydro.rules_of(surrogate) or {}
    assert rules["embed.weight"].role == "tied"
    assert rules["embed.weight"].lr_multiplier("sgd") == 1 / 8
    expected = 1 / math.sqrt(3 * 64)
    assert float(weight.detach().std()) == pytest.approx(expected, rel=0.1)
    assert float(surrogate.get_parameter("place.weight").detach().std()) == pytest.approx(expected, rel=0.3)
    only_head = surrogate(torch.zeros(2, 3, dtype=torch.long))[..., 7].sum()
    only_head.backward()
    assert weight.grad is not None
    assert weight.grad[7].abs().sum() > 0
    assert weight.grad[0].abs().sum() > 0


def test_embeddings_keep_unit_variance_and_their_padding_row() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(200, 256, padding_idx=5), nn.Linear(256, 256), nn.Linear(256, 7))
    surrogate = hydro.shrink(model, torch.randint(0, 200, (2, 3)), scaling=8)
    table = surrogate.get_parameter("0.weight").detach()
    assert table.shape == (200, 32)
    assert not table[5].any()
    assert float(table[6:].std()) == pytest.approx(1.0, rel=0.05)


def test_frozen_tables_and_buffers_keep_their_values_at_spread_positions() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Linear(4, 64), nn.Linear(64, 2)
            self.table = nn.Parameter(torch.arange(64.0).repeat(3, 1), requires_grad=False)
            self.register_buffer("slopes", torch.arange(64.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.embed(x) * self.slopes + self.table)

    surrogate = hydro.shrink(Fixed(), torch.randn(3, 4), scaling=8)
    positions = [0.0, 1.0, 16.0, 17.0, 32.0, 33.0, 48.0, 49.0]
    assert surrogate.get_buffer("slopes").tolist() == positions
    table = surrogate.get_parameter("table")
    assert table.tolist() == [positions] * 3
    assert not table.requires_grad


def test_tensor_types_survive_and_double_models_work() -> None:
    model = mlp(64).double()
    surrogate = hydro.shrink(model, torch.randn(2, 64).double(), scaling=4)
    assert {parameter.dtype for parameter in surrogate.parameters()} == {torch.float64}
    assert surrogate(torch.randn(3, 64).double()).dtype == torch.float64


def test_the_users_model_is_left_alone() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(4)
    )
    x = torch.randn(2, 3, 5, 5)
    model(x)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    hydro.trace(model, x)
    assert torch.equal(torch.random.get_rng_state(), state)
    hydro.shrink(model, x, scaling=4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training
    assert model[3].p == 0.5


def test_running_statistics_start_anew() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 2, 1))
    model(torch.randn(4, 3, 8, 8) + 5)
    surrogate = hydro.shrink(model, torch.randn(2, 3, 8, 8), scaling=4)
    assert surrogate.get_buffer("1.running_mean").tolist() == [0.0] * 4
    assert int(surrogate.get_buffer("1.num_batches_tracked")) == 0


def test_draws_follow_the_global_seed() -> None:
    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return hydro.shrink(model, torch.randn(2, 64), scaling=8).get_parameter("2.weight").detach()

    model = mlp(64)
    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def warned(model: nn.Module, inputs: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hydro.shrink(model, inputs, scaling=4, min_width=1)
    return [str(item.message) for item in caught if item.category.__name__ == "HydroWarning"]


def test_replacing_the_users_own_initialisation_is_said_and_pytorchs_is_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3, groups=16), nn.Flatten(),
        nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4),
    )  # fmt: skip
    assert warned(model, torch.randn(2, 3, 5, 5)) == []
    nn.init.normal_(model[4].weight, std=0.02)
    nn.init.constant_(model[6].bias, -4.0)
    (message,) = warned(model, torch.randn(2, 3, 5, 5))
    assert "4.weight, 6.bias" in message


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_and_attention_defaults_are_known(kind: Any) -> None:
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = kind(8, 32, batch_first=True)
            self.attend = nn.MultiheadAttention(32, 4, batch_first=True)
            self.head = nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.cells(x)[0]
            return self.head(self.attend(x, x, x)[0])

    assert warned(Net(), torch.randn(2, 4, 8)) == []


def test_exposed_hidden_features_shrink_with_a_warning() -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(8, 32, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.cells(x)[0]

    (message,) = warned(Features(), torch.randn(2, 3, 8))
    assert "hidden features of width 32" in message
