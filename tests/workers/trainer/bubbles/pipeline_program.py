"""One rank of a pipeline that runs the example of the documentation. `RANK STORE BOARDS`."""

import os
import re
import sys
from pathlib import Path

rank, store, boards = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["FOREBAY_BUBBLES"] = boards

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: E402

from workers.squeezer.board import Board  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
# the second stage has more work, so that the first has something to wait for
module = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(1 if rank == 0 else 40)])
stage = PipelineStage(module, rank, 2, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
target = torch.zeros(512, 128) if rank else None
seen = []


def follow(data):
    """Yield the batches; look at the board before the last one."""
    for index in range(8):
        if index == 7:
            [path] = Path(boards).glob(f"{os.getpid()}.board")
            seen.append(Board(path).totals())
        yield (data,) if rank == 0 else (), target


batches = follow(torch.ones(512, 128))
text = (Path(__file__).parents[4] / "docs" / "coordinator.md").read_text()
example = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
assert len(example.strip().splitlines()) < 10
before = schedule.step
exec(example)  # noqa: S102
assert schedule.step == before
assert not list(Path(boards).glob(f"{os.getpid()}.board"))
print(seen[0].bubbles, seen[0].waited_ns)
dist.destroy_process_group()
