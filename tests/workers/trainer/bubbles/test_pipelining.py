"""A user's own pipeline lends its bubbles, with the lines that the documentation shows."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("pipeline_program.py")


def test_the_documented_lines_lend_the_bubbles_of_a_torch_schedule(tmp_path: Path) -> None:
    boards, root = tmp_path / "boards", PROGRAM.parents[4]
    path = os.pathsep.join([str(root), str(root / "platform")])
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(tmp_path / "store"), str(boards)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        for rank in (0, 1)
    ]
    outputs = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs[0][1] + outputs[1][1]
    announced, waited_ns = map(int, outputs[0][0].split())
    assert announced > 0
    assert waited_ns > 0
