"""Run a study of a program in a process of its own, with limits: the program may be somebody's code.

This module loads no PyTorch; the other process does.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs.core.errors import JobError

LIMIT_S = 600.0
_COMMAND = "workers.trainer.overlap.process"
_POLL_S = 0.2


class StudyFailed(JobError):
    """The process ended without an answer: it ran out of time or memory, or crashed."""


class StudyStopped(JobError):
    """Somebody asked for it to stop."""


def run_apart(
    request: Mapping[str, Any], *, limit_s: float = LIMIT_S, stop: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Return the document, or `{"refused": sentence}`, or `{"error": ..., "smallest_peak_bytes": ...}`.

    Args:
        request: the fields of `study.Request`.
        stop: asked now and then whether to give up.

    Raises:
        StudyFailed, StudyStopped.
    """
    with tempfile.TemporaryDirectory(prefix="forebay-overlap-") as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log.txt"
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", _COMMAND, str(answer), str(int(limit_s))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            )
            try:
                _feed(child, request)
                _wait(child, limit_s, stop)
            finally:
                _end(child)
        if child.returncode or not answer.exists():
            raise StudyFailed(f"the program's process ended with {_status(child.returncode)}{_tail(log)}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def _feed(child: subprocess.Popen[bytes], request: Mapping[str, Any]) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(json.dumps(request).encode())


def _wait(child: subprocess.Popen[bytes], limit_s: float, stop: Callable[[], bool]) -> None:
    left = limit_s
    while True:
        try:
            child.wait(_POLL_S)
            return
        except subprocess.TimeoutExpired:
            left -= _POLL_S
            if stop():
                raise StudyStopped("stopped") from None
            if left <= 0:
                raise StudyFailed(f"the program took longer than {limit_s:g} seconds") from None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End it and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""
