"""Processes by identity."""

import os
import signal
import subprocess
from pathlib import Path

from forebay.supervisor.process import Identity, identify, tail, wait_until_gone, was_started_with


def test_an_identity_tells_a_process_from_a_later_one_with_its_number() -> None:
    mine = identify(os.getpid())
    assert mine is not None
    assert mine.is_alive()
    assert not Identity(mine.pid, mine.started + 1).is_alive()


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen(["sleep", "60"])
    identity = identify(process.pid)
    assert identity is not None
    process.kill()
    assert wait_until_gone([identity], 10) == []  # not reaped yet
    process.wait()
    assert identify(process.pid) is None


def test_a_signal_never_reaches_a_stranger_with_the_same_number() -> None:
    process = subprocess.Popen(["sleep", "60"])
    identity = identify(process.pid)
    assert identity is not None
    Identity(identity.pid, identity.started + 1).send(signal.SIGKILL)
    assert process.poll() is None
    identity.send(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_a_name_with_brackets_and_spaces_does_not_confuse(tmp_path: Path) -> None:
    program = tmp_path / "a) S (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "60"])
    identity = identify(process.pid)
    process.kill()
    process.wait()
    assert identity is not None
    assert identity.started > 0


def test_a_process_is_recognised_by_an_argument() -> None:
    process = subprocess.Popen(
        ["sh", "-c", "echo; read line", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()  # the kernel shows the new command line only once the program runs
    assert was_started_with(process.pid, Path("60"))
    assert not was_started_with(process.pid, Path("6"))
    process.kill()
    process.wait()


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(5000)))
    assert tail(log, 2) == "line 4998\nline 4999"
    assert tail(tmp_path / "absent") == ""
