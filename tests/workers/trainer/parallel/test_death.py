"""Real processes, really killed: in an iteration, in a change, all holders of a layer, the launcher."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from workers.trainer.parallel.data import Packer, load_corpus

TWO_BY_TWO = [(4, [([0], 2), ([1], 2)]), (4, [([2], 2), ([3], 2)])]


def samples_by_step(spec, steps):
    packer, cursor, rows = Packer(load_corpus(spec.context), spec.microbatch_tokens, spec.seed), 0, []
    for _ in range(steps):
        batches, cursor = packer.pack(cursor, spec.microbatches)
        rows.append([sample for batch in batches for sample in batch])
    return rows


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill(run, rank):
    os.kill(run.fleet.pids()[rank], signal.SIGKILL)
    run.until(lambda: rank in run.fleet.lost())


def test_a_run_survives_the_death_of_its_ranks_at_any_time(crew, layout_of):
    run = crew(layout_of(*TWO_BY_TWO), real=True, steps=100_000, checkpoint_every=4)
    fleet = run.fleet
    run.until(lambda: run.of("checkpoint"))

    # in an iteration: the others give it up and run it again with the same samples
    kill(run, 3)
    run.until(lambda: len(run.of("abandoned", epoch=0)) == 3)
    three = layout_of((5, [([0], 2), ([1], 2)]), (3, [([2], 4)]))
    run.resumed(fleet.reconfigure(three), 3)
    begun = run.of("resumed", epoch=1)[0]["step"]
    assert run.of("resumed", epoch=1)[0]["restored"] is None
    run.until(lambda: run.of("iteration", epoch=1, step=begun + 1))

    # while the layout changes: a vote that never comes is superseded by the next epoch
    os.kill(fleet.pids()[2], signal.SIGSTOP)
    fleet.reconfigure(layout_of((4, [([0], 1), ([1], 3)]), (4, [([2], 4)])))
    kill(run, 2)
    run.until(lambda: len(run.of("phase", epoch=2, name="drain")) == 2)
    run.resumed(fleet.reconfigure(layout_of((8, [([0], 3), ([1], 1)]))), 2)
    assert {row["epoch"] for row in run.of("abandoned") if row["plan_rank"] in (0, 1)} >= {1, 2}

    # lost ranks come back as new processes, while the others train, and get their state from them
    for rank in sorted(fleet.lost()):
        fleet.admit(rank)
    run.until(lambda: all(fleet.ready(rank) for rank in range(4)))
    run.resumed(fleet.reconfigure(layout_of(*TWO_BY_TWO)), 4)
    assert run.of("resumed", epoch=4)[0]["restored"] is None
    run.until(lambda: run.of("iteration", epoch=4))

    # no living rank holds the last layers: all go back to the last checkpoint
    kill(run, 1)
    kill(run, 3)
    run.resumed(fleet.reconfigure(layout_of((8, [([2, 0], 4)]))), 2)
    back = run.of("resumed", epoch=5)
    assert {row["step"] % 4 for row in back} == {0}
    assert len({row["restored"] for row in back}) == 1
    run.until(lambda: run.of("iteration", epoch=5))

    fleet.finish()
    run.finished()
    steps = max(run.committed())
    assert sorted(run.committed()) == list(range(1, steps + 1))
    rows = zip(run.samples_by_step(), samples_by_step(fleet.spec, steps), strict=True)
    for step, (reported, expected) in enumerate(rows, 1):
        # of the last step before a death, the dead rank's own report may be missing
        assert len(set(reported)) == len(reported)
        assert set(reported) <= set(expected)
        if step not in {row["step"] for row in run.of("resumed")}:
            assert sorted(reported) == sorted(expected)
    pids = list(fleet.pids().values())
    fleet.stop()
    assert all(gone(pid) for pid in pids)


def test_ranks_end_by_themselves_when_their_launcher_is_killed(layout_of, tmp_path):
    spec = {
        "devices": ["d0", "d1"],
        "layout": layout_of((8, [([0], 2), ([1], 2)])),
        "folder": str(tmp_path),
        "width": 32,
        "steps": 100_000,
    }
    program = Path(__file__).with_name("launcher_program.py")
    command = [sys.executable, str(program), json.dumps(spec)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pids = json.loads(launcher.stdout.readline())
        assert not any(gone(pid) for pid in pids)
        launcher.kill()
        ends = time.monotonic() + 200
        while not all(gone(pid) for pid in pids) and time.monotonic() < ends:
            time.sleep(0.02)
    assert all(gone(pid) for pid in pids)
