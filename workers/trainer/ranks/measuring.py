"""`python -m workers.trainer.ranks.measuring NAME --set batch_size=16`: an epoch on one process and on two.

Prints seconds on the wall and processor seconds of each rank; these do not count what else the machine does.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from tuning.core.study.events import TargetEnded, TargetReported
from tuning.core.workload import check_workload
from workers.trainer.loading import load_workload
from workers.trainer.orders import Seat, Setting, TargetOrder
from workers.trainer.process import serve

TICKS = 100  # of processor time in a second, as Linux counts them


def measure(order: TargetOrder, ranks: int) -> dict[str, Any]:
    """Return the mean seconds of every epoch of an order but the first, on so many processes."""
    workload = load_workload(order.setting.workload)
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for _ in range(ranks):
        here, there = context.Pipe()
        processes.append(context.Process(target=serve, args=(there, workload, 1), daemon=True))
        processes[-1].start()
        pipes.append(here)
    pipes[0].send(("meet", order.run))
    port = pipes[0].recv()[2]
    for rank, pipe in enumerate(pipes):
        seat = Seat(rank, ranks, "127.0.0.1", port) if ranks > 1 else None
        pipe.send(("order", replace(order, seat=seat)))
    marks = _listen(pipes, [int(process.pid or 0) for process in processes])
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join(10)
    (first_s, first_cpu), (last_s, last_cpu) = marks[0], marks[-1]
    epochs = len(marks) - 1
    cpu = [round((end - begin) / epochs, 3) for begin, end in zip(first_cpu, last_cpu, strict=True)]
    return {"ranks": ranks, "wall_s": round((last_s - first_s) / ranks / epochs, 3), "processor_s": cpu}


def _listen(pipes: list[Connection], pids: list[int]) -> list[tuple[float, list[float]]]:
    """Return device seconds and every rank's processor seconds at the end of each epoch."""
    marks: list[tuple[float, list[float]]] = []
    left = list(pipes)
    while left:
        for pipe in wait(left):
            assert isinstance(pipe, Connection)
            message = pipe.recv()
            if isinstance(message, TargetReported):
                marks.append((message.device_seconds, [_processor_s(pid) for pid in pids]))
            elif isinstance(message, TargetEnded):
                left.remove(pipe)
            elif isinstance(message, tuple) and message[0] in ("broken", "parted"):
                raise RuntimeError(message[2])
    return marks


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> None:
    """Measure a workload on one process and on two, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--set", action="append", default=[], help="a hyperparameter, as name=number")
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    values: Mapping[str, Any] = {n: json.loads(v) for n, _, v in (one.partition("=") for one in given.set)}
    config = check_workload(load_workload(given.workload)).sample(random.Random(0)) | dict(values)
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(given.workload, folder, data_seed=0, scaling=8, threads=1)
        for ranks in (1, 2):
            order = TargetOrder("t0", setting, 0, config, seed=0, epochs=given.epochs)
            print(json.dumps(measure(order, ranks)), flush=True)


if __name__ == "__main__":
    main()
