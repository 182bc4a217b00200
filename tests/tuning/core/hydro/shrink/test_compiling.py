"""A recorded model is one that torch.compile can take: it names its lines as a GraphModule does."""

import torch
from torch import Tensor, nn

from tuning.core.hydro.tracing import trace


class Doubled(nn.Module):
    """Layers with a function between them: the recorded forward calls both."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.relu(self.inner(x)) * 2)


def test_a_recorded_model_compiles_to_the_same_function() -> None:
    model, inputs = Doubled(), torch.randn(3, 4)
    recorded = trace(model, inputs)
    compiled = torch.compile(recorded, dynamic=False, backend="eager")
    assert torch.equal(compiled(inputs), model(inputs))
