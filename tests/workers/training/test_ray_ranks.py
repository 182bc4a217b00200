"""Ranks as Ray actors: they train, suffer, die and are replaced like any others."""

import os
import signal
import time
from pathlib import Path

from workers.trainer.parallel.fleet import Fleet
from workers.trainer.parallel.spec import RunSpec
from workers.training.ray_ranks import RayProcesses

PATIENCE_S = 250


def layout(*replicas):
    return {
        "replicas": [
            {
                "microbatches": count,
                "stages": [{"devices": names, "layers": layers} for names, layers in stages],
            }
            for count, stages in replicas
        ]
    }


def until(fleet, events, condition):
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        events += fleet.poll()
        assert time.monotonic() < ends, events[-10:]
        time.sleep(0.01)


def seen(events, kind, **fields):
    return [e for e in events if e["kind"] == kind and all(e[name] == fields[name] for name in fields)]


def state_of(pid):
    """The state letter of a process, Z also for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def gone(pid):
    return state_of(pid) == "Z"


def test_actors_train_and_a_dead_or_stopped_one_is_given_up(tmp_path):
    rows = [{"rank": rank, "kind": "cpu", "index": 0, "ray_node_id": None} for rank in range(2)]
    both, alone = layout((8, [(["a"], 2), (["b"], 2)])), layout((8, [(["a"], 4)]))
    spec = RunSpec(devices=("a", "b"), layout=both, folder=str(tmp_path), width=32, steps=100_000)
    fleet, events = Fleet(spec, RayProcesses(rows)), []
    fleet.start()
    try:
        until(fleet, events, lambda: seen(events, "iteration", plan_rank=1))
        pids = fleet.pids()
        # a stopped actor hears nothing of Ray, but the kernel ends it
        fleet.inject(1, "stop")
        until(fleet, events, lambda: state_of(pids[1]) == "T")
        fleet.reconfigure(alone, without={1})
        until(fleet, events, lambda: gone(pids[1]) and seen(events, "iteration", epoch=1))
        assert fleet.lost() == {1}
        # nobody else had the last layers and there is no checkpoint yet: everything begins again
        assert [row["step"] for row in seen(events, "resumed", epoch=1)] == [0]
        os.kill(pids[0], signal.SIGKILL)
        until(fleet, events, lambda: fleet.lost() == {0, 1})
    finally:
        fleet.stop()
    assert all(gone(pid) for pid in pids.values())
