"""`forebay bench platform`: a small run of the real thing, and nothing left of it however it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli.bench.platform import Figure
from forebay.cli.bench.platform_sockets import Received, quantile

pytestmark = pytest.mark.platform
ENVIRONMENT = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
CLIENTS, TRIALS = 5, 300
PARTS = ("memory", "pages", "sockets", "incidents")


@pytest.fixture
def place() -> Iterator[Path]:
    """The only directory in which the bench may write; it must be empty again at the end."""
    path = Path(tempfile.mkdtemp(prefix="fb-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    left, processes = list(path.iterdir()), processes_of(path)
    assert (left, processes) == ([], [])
    path.rmdir()


def processes_of(place: Path) -> list[str]:
    """Command lines of every process that was told about the directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(place) in told:
            found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def bench(place: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start the bench as a user does."""
    command = [sys.executable, "-m", "forebay.cli.main", "bench", "platform", *arguments]
    environment = ENVIRONMENT | {"TMPDIR": str(place)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd="/"
    )


def test_a_small_run_measures_the_real_platform_and_leaves_nothing(place: Path) -> None:
    small = (f"--clients={CLIENTS}", "--seconds=1", f"--trials={TRIALS}")
    run = bench(place, "--quick", "--json", f"--only={','.join(PARTS)}", *small)
    output, errors = run.communicate(timeout=280)
    assert run.returncode == 0, errors
    found = json.loads(output)
    memory, pages, sockets, incidents = (found["details"][name] for name in PARTS)
    assert {"web", "tuner", "coordinator", "recovery", "beat", "postgres", "valkey"} <= memory.keys()
    assert all(0 < part["pss_mb"] <= part["rss_mb"] for part in memory.values())
    assert {page["count"] for page in pages.values()} == {10}
    for clients in (CLIENTS, 2 * CLIENTS):
        heard = sockets[str(clients)]
        assert (heard["clients"], heard["received"]) == (clients, clients * heard["events"])
        assert (heard["missing"], heard["doubled"], heard["disconnected"]) == (0, 0, 0)
        assert 0 < heard["median_s"] <= heard["p99_s"] <= heard["max_s"]
    assert incidents["count"] == 20
    goals = {figure["name"]: figure["is_met"] for figure in found["figures"]}
    assert goals[f"{CLIENTS} WebSocket clients at 5/s, lost or doubled"] is True


def test_interrupted_it_stops_the_platform_and_deletes_it(place: Path) -> None:
    run = bench(place, "--quick", "--only=events")
    deadline = time.monotonic() + 60
    while not list(place.glob("*/data/runtime.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(place.glob("*/data/runtime.json"))
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=120)
    # Where the signal met an import, Python ends itself by it; a shell calls both 130.
    assert run.returncode in {130, -signal.SIGINT}, errors
    assert output == ""
    assert "Traceback" not in errors


def test_an_unknown_part_is_refused_before_anything_starts(place: Path) -> None:
    run = bench(place, "--only=start,speed")
    output, errors = run.communicate(timeout=60)
    assert (run.returncode, output) == (2, "")
    assert "--only: 'speed' is no part; there are start, memory," in errors


def test_missing_and_repeated_events_are_counted() -> None:
    received = Received(next_seq=5)
    for seq in (5, 6, 9, 6, 10):
        received.take(seq, 0.1)
    assert (received.gaps, received.doubles, received.next_seq) == (2, 1, 11)
    assert len(received.latencies_s) == 4


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.99, None),
        ([1.0], 0.99, 1.0),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 101)), 0.5, 50),
        (list(range(1, 102)), 0.99, 100),
        (list(range(1, 501)), 0.99, 495),
    ],
)
def test_a_quantile_is_the_smallest_value_that_covers_the_share(
    values: list[float], share: float, expected: float | None
) -> None:
    assert quantile(values, share) == expected


@pytest.mark.parametrize(
    ("value", "goal", "at_least", "is_met"),
    [
        (1.0, 1.0, False, True),
        (1.1, 1.0, False, False),
        (1.1, 1.0, True, True),
        (0.9, 1.0, True, False),
        (0.9, None, False, None),
        (None, 1.0, False, None),
    ],
)
def test_a_figure_knows_whether_its_goal_is_met(
    value: float | None, goal: float | None, at_least: bool, is_met: bool | None
) -> None:
    assert Figure("speed", value, "s", goal, at_least).is_met is is_met
