"""One rank of a tensor-parallel training loop, eager and compiled; started by test_processes.py."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import workers.trainer.overlap.backend  # noqa: F401  (registers the backend also where it is not installed)
from workers.trainer.overlap.agreement import PlansDiffer, agree
from workers.trainer.overlap.programs.collectives import enter, leave
from workers.trainer.overlap.worlds import register_groups


class Half(nn.Module):
    """A rank's half of two MLP layers: columns, then rows, and an all-reduce after each pair."""

    def __init__(self, rank):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        whole = [torch.randn(16, 32, generator=generator) * 0.2 for _ in range(4)]
        self.up = nn.ParameterList([nn.Parameter(w.chunk(2, 1)[rank].clone()) for w in whole[:2]])
        self.down = nn.ParameterList([nn.Parameter(w.t().chunk(2, 0)[rank].clone()) for w in whole[2:]])

    def forward(self, x):
        for up, down in zip(self.up, self.down, strict=True):
            x = x + leave(F.gelu(enter(x, "tp") @ up) @ down, "tp")
        return x


def train(rank, compiled, plans):
    model = Half(rank)
    step = model
    if compiled:
        step = torch.compile(model, backend="forebay", options={"report": plans.append})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 16, generator=generator)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(step(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def main(rank, store, answer):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    register_groups({"tp": [0, 1]}, 2)
    plans = []
    losses = {"eager": train(rank, False, plans), "forebay": train(rank, True, plans)}
    try:
        agree({"tp": f"digest of rank {rank}"})
        differing = ""
    except PlansDiffer as error:
        differing = str(error)
    Path(answer).write_text(json.dumps({"losses": losses, "plans": plans, "differing": differing}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
