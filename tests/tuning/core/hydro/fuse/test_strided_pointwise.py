"""A strided 1x1 convolution alone in its container: channels-last overruns memory in PyTorch 2.13."""

import subprocess
import sys

SCRIPT = """
import torch
from torch import nn
from forebay import hydro

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 8, 1, stride=2, bias=False))
images = torch.randn(32, 4, 14, 14)
fused = hydro.fuse([model], images, seeds=[0])
optimizer = hydro.optimizer(torch.optim.SGD, fused, lr=0.1)
alone = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    hydro.backward(hydro.losses(lambda output, _: (output**2).mean(), fused(images), images))
    optimizer.step()
    alone.zero_grad()
    (model(images) ** 2).mean().backward()
    alone.step()
after = hydro.extract(fused, 0).state_dict()
assert all(torch.allclose(after[name], value, atol=1e-5) for name, value in model.state_dict().items())
"""


def test_it_trains_as_alone_and_does_not_crash():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-500:]
