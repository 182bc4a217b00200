"""What a local Ray leaves in the temporary directory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

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


STARTED = """
import django; django.setup()
import json, psutil
from workers.ray_cluster import connect, ray
connect()
ray.get(ray.remote(lambda: 1).remote())
print(json.dumps([child.pid for child in psutil.Process().children(recursive=True)]))
"""


def test_no_process_of_a_local_ray_outlives_the_one_that_started_it(tmp_path: Path) -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "web.settings", "FOREBAY_DATA": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", STARTED], env=environment, capture_output=True, text=True, check=True
    )
    started = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(started) > 3
    assert [pid for pid in started if _lives(pid)] == []


def _lives(pid: int) -> bool:
    """Whether a process runs; one that only waits for whoever adopted it to look does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
