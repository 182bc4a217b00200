"""A micro-benchmark of a suspect device against its neighbours: chained matrix products, repeated in turn.

Run alone it would say little: speeds of one model of device differ by machine and by temperature. So the
suspect and its neighbours take turns within seconds, the first round is thrown away, and the median of the
faster half counts. Cores are timed by processor time, which other work on the same core hardly lengthens.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

ROUNDS, NEIGHBOURS = 20, 3
CORE_WIDTH, GPU_WIDTH = 384, 4096
LIMIT_S = 120


def measure(kind: str, suspect: int, neighbours: Sequence[int]) -> dict[str, Any]:
    """Return the suspect's factor and every repetition's seconds; cores or GPUs of this machine."""
    devices = [suspect, *neighbours[:NEIGHBOURS]]
    run = _core if kind == "cpu" else _gpu
    seconds: dict[int, list[float]] = {device: [] for device in devices}
    for repetition in range(ROUNDS + 1):
        for device in devices:
            taken = run(device)
            if repetition:  # the first one is cold
                seconds[device].append(taken)
    own = _undisturbed(seconds[suspect])
    others = [_undisturbed(seconds[device]) for device in devices[1:]]
    # Without a neighbour there is only its own best to hold it against.
    reference = median(others) if others else min(seconds[suspect])
    return {
        "factor": own / reference,
        "seconds": {str(device): [round(s, 6) for s in rows] for device, rows in seconds.items()},
        "rounds": ROUNDS,
        "neighbours": list(neighbours[:NEIGHBOURS]),
    }


def _undisturbed(seconds: list[float]) -> float:
    """The median of the faster half: what other work on the machine slowed down does not count."""
    return median(sorted(seconds)[: len(seconds) // 2])


def _core(core: int) -> float:
    import numpy as np

    os.sched_setaffinity(0, {core})
    rng = np.random.default_rng(0)
    x = rng.standard_normal((CORE_WIDTH, CORE_WIDTH), dtype=np.float32)
    up = rng.standard_normal((CORE_WIDTH, 4 * CORE_WIDTH), dtype=np.float32)
    began = time.thread_time()
    for _ in range(4):
        x = np.tanh(x @ up @ up.T / CORE_WIDTH)
    return time.thread_time() - began


def _gpu(index: int) -> float:
    import torch

    device = torch.device("cuda", index)
    x = torch.ones(GPU_WIDTH, GPU_WIDTH, device=device)
    up = torch.ones(GPU_WIDTH, 4 * GPU_WIDTH, device=device)
    torch.cuda.synchronize(device)
    began = time.monotonic()
    for _ in range(4):
        x = torch.tanh(x @ up @ up.T)
    torch.cuda.synchronize(device)
    return time.monotonic() - began


def measure_apart(kind: str, suspect: int, neighbours: Sequence[int]) -> dict[str, Any]:
    """Measure in a process of its own, which may be pinned and may hang without hurting anybody."""
    request = json.dumps({"kind": kind, "suspect": suspect, "neighbours": list(neighbours)})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "workers.training.burn_in", request],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=environment,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"factor": None, "error": last[:500]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
