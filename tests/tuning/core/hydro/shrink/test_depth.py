"""Fewer blocks: which go, how the others' branches are scaled, and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core import hydro
from tuning.core.hydro.groups import parameter_groups
from tuning.core.hydro.layers import Scale


class Block(nn.Module):
    def __init__(self, width: int, *, post: bool = False) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 64), nn.Linear(64, width)
        self.post = post

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            return self.norm(x + self.down(F.relu(self.up(x))))
        return x + self.down(F.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, blocks: int = 6, *, post: bool = False) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(5, 32), nn.Linear(32, 3)
        self.blocks = nn.ModuleList(Block(32, post=post) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


X = torch.randn(4, 5)


def kept(module: nn.Module) -> list[str]:
    return sorted({name.split(".")[1] for name, _ in module.named_parameters() if name.startswith("blocks")})


@pytest.mark.parametrize(
    ("scaling", "expected", "factor"),
    [(1, "012345", None), (2, "024", 2.0), (3, "03", 3.0), (4, "03", 3.0), (6, "0", 6.0)],
)
def test_blocks_are_kept_evenly_and_branches_multiplied(
    scaling: int, expected: str, factor: float | None
) -> None:
    model = Net()
    surrogate = hydro.shrink(model, X, scaling=4, depth_scaling=scaling)
    assert kept(surrogate) == list(expected)
    factors = [
        layer.factor for layer in surrogate.modules() if isinstance(layer, Scale) and layer.reason == "depth"
    ]
    assert factors == ([] if factor is None else [factor] * len(expected))
    assert surrogate(torch.randn(7, 5)).shape == (7, 3)
    assert set(surrogate.state_dict()) <= set(model.state_dict())
    assert len(model.blocks) == 6


def test_the_thin_model_computes_the_scaled_residual_sum() -> None:
    model = Net(4)
    surrogate = hydro.shrink(model, X, scaling=1, depth_scaling=2)
    surrogate.load_state_dict(
        {key: value for key, value in model.state_dict().items() if key in surrogate.state_dict()}
    )
    x = model.inp(X)
    for index in (0, 2):
        x = x + 2.0 * (model.blocks[index](x) - x)
    torch.testing.assert_close(surrogate(X), model.out(x))


def test_adams_epsilon_follows_the_branch() -> None:
    surrogate = hydro.shrink(Net(), X, scaling=4, depth_scaling=3)
    rules = hydro.rules_of(surrogate) or {}
    assert {rule.adam_eps for name, rule in rules.items() if name.startswith("blocks")} == {3.0}
    assert rules["inp.weight"].adam_eps == rules["out.weight"].adam_eps == 1.0
    found = {group["eps"] for group in parameter_groups(surrogate, 0.1, eps=1e-6)}
    assert sorted(found) == pytest.approx([1e-6, 3e-6])


def test_blocks_whose_stream_is_normalised_are_refused() -> None:
    with pytest.raises(hydro.ShrinkError, match="none was found"):
        hydro.shrink(Net(post=True), X, scaling=4, depth_scaling=2)
