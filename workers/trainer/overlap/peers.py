"""The same program on real gloo processes of this machine: numbers, and times over an emulated link."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.trainer.overlap.isolation import StudyFailed

_COMMAND = "workers.trainer.overlap.peer"


def run_peers(request: Mapping[str, Any], world: int = 2, limit_s: float = 500.0) -> list[dict[str, Any]]:
    """Start one process for each rank; return what each of them says.

    Raises:
        StudyFailed: one of them failed or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="forebay-peers-") as folder:
        answers = [Path(folder) / f"{rank}.json" for rank in range(world)]
        logs = [Path(folder) / f"{rank}.log" for rank in range(world)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        children = []
        for rank in range(world):
            own = {**request, "rank": rank, "world": world, "store": str(Path(folder) / "store")}
            with logs[rank].open("wb") as log:
                children.append(
                    subprocess.Popen(
                        [sys.executable, "-m", _COMMAND, json.dumps(own), str(answers[rank])],
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=environment,
                    )
                )
        try:
            for child in children:
                child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise StudyFailed(f"the processes took longer than {limit_s:g} seconds") from None
        finally:
            for child in children:
                child.kill()
                child.wait()
        for rank, child in enumerate(children):
            if child.returncode or not answers[rank].exists():
                raise StudyFailed(f"process {rank} ended with {child.returncode}: {_cause(logs[rank])}")
        return [json.loads(answer.read_text(encoding="utf-8")) for answer in answers]


def _cause(log: Path) -> str:
    """The line that names the error; libraries may say more after it."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line.split(":")[0] or "Error:" in line]
    return "".join((named or lines)[-1:])[:300]
