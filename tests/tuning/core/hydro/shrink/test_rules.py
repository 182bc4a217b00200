"""The muP table, row by row, and how a module carries it."""

import copy

import pytest
import torch
from torch import nn

from tuning.core import hydro
from tuning.core.hydro.groups import parameter_groups, plain_optimizer
from tuning.core.hydro.rules import OPTIMIZERS, ParameterRule, family_named, rule_for

IN, OUT = 6.0, 4.0


@pytest.mark.parametrize(
    ("role", "sgd", "adam"),
    [
        ("hidden", IN / OUT, IN),
        ("input", 1 / OUT, 1.0),
        ("embedding", 1 / OUT, 1.0),
        ("bias", 1 / OUT, 1.0),
        ("norm", 1 / OUT, 1.0),
        ("vector", 1 / OUT, 1.0),
        ("output", 1 / IN, 1.0),
        ("tied", 1 / IN, 1.0),
    ],
)
def test_learning_rates_follow_the_table(role: str, sgd: float, adam: float) -> None:
    rule = rule_for(role, IN, OUT, "mup")  # type: ignore[arg-type]
    assert rule.lr_multiplier("sgd") == pytest.approx(sgd)
    assert rule.lr_multiplier("adam") == rule.lr_multiplier("adamw") == pytest.approx(adam)


def test_sgd_leaves_the_rate_of_a_hidden_weight_alone_where_both_sides_shrink_alike() -> None:
    assert rule_for("hidden", 8.0, 8.0, "mup").lr_multiplier("sgd") == 1.0
    assert rule_for("hidden", 8.0, 8.0, "hydro").lr_multiplier("sgd") == 8.0
    assert rule_for("hidden", 8.0, 8.0, "standard").lr_multiplier("adam") == 1.0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("role", ["hidden", "input", "output", "bias"])
def test_rate_times_decay_is_what_the_user_wrote(role: str, optimizer: str) -> None:
    rule = rule_for(role, IN, OUT, "mup")  # type: ignore[arg-type]
    assert rule.lr_multiplier(optimizer) * rule.weight_decay_multiplier(optimizer) == pytest.approx(1.0)


def test_an_unknown_optimizer_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(hydro.HydroError, match="'lamb'.*sgd, adam, adamw"):
        family_named("lamb")


def test_rules_travel_with_a_copy_and_not_with_the_state() -> None:
    module = nn.Linear(2, 3)
    assert hydro.rules_of(module) is None
    assert hydro.optimizer_family_of(module) is None
    keys = list(module.state_dict())
    hydro.attach_rules(module, {"weight": ParameterRule("hidden", 2.0, 2.0, 1.0, 2.0)}, "adamw")
    twin = copy.deepcopy(module)
    assert hydro.rules_of(twin) == hydro.rules_of(module) != {}
    assert hydro.optimizer_family_of(twin) == "adam"
    assert list(twin.state_dict()) == keys


def test_groups_carry_rate_and_decay_of_each_tensor_whatever_the_value() -> None:
    """Equal rates must not lose the factors, as they do where a list of equal values becomes a scalar."""
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    surrogate = hydro.shrink(model, torch.randn(2, 6), scaling=8, optimizer="sgd", parametrization="mup")
    names = {id(parameter): name for name, parameter in surrogate.named_parameters()}
    for lr in (0.1, 0.2):
        found = {
            names[id(parameter)]: (group["lr"] / lr, group["weight_decay"])
            for group in parameter_groups(surrogate, lr, weight_decay=0.5)
            for parameter in group["params"]
        }
        assert found["0.weight"] == pytest.approx((1 / 8, 4.0))
        assert found["2.weight"] == pytest.approx((1.0, 0.5))
        assert found["4.weight"] == pytest.approx((1 / 8, 4.0))
        assert found["4.bias"] == pytest.approx((1.0, 0.5))


def test_a_plain_module_trains_at_the_users_own_rate() -> None:
    optimizer = plain_optimizer(nn.Linear(3, 3), "adamw", 0.25, weight_decay=0.5)
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(0.25, 0.5)]
