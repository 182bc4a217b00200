"""What a local Ray leaves in the temporary directory."""

import os
import subprocess
import sys
from pathlib import Path

from workers.ray_cluster import _forget_sessions


def test_sessions_of_processes_that_are_gone_are_deleted_and_live_ones_stay(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = tmp_path / f"session_2026-01-01_00-00-00_000000_{gone.pid}"
    alive = tmp_path / f"session_2026-01-01_00-00-00_000001_{os.getpid()}"
    for session in (dead, alive):
        (session / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to(dead)
    for _ in range(2):  # the link dangles once its session is gone
        _forget_sessions(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [alive.name]
