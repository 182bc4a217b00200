"""A child's life, with real processes and a clock of our own."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.supervisor.child import (
    FIRST_DELAY_S,
    HEALTH_INTERVAL_S,
    LONGEST_DELAY_S,
    MOST_TRIES_ONCE,
    STEADY_S,
    UNHEALTHY_S,
    Child,
    ChildState,
    stop_together,
)
from forebay.supervisor.part import Part, program
from forebay.supervisor.process import identify, wait_until_gone

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def child_of(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    made: list[Child] = []

    def make(script: str, **options: object) -> Child:
        spawn = program(["sh", "-c", script], PATH, directory=tmp_path)
        made.append(Child(Part("part", spawn, **options), tmp_path / "part.log"))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for child in made:
        child.kill_group()
        if child.process is not None:
            child.process.wait()


def until_exit(child: Child) -> None:
    assert child.process is not None
    child.process.wait()


def test_a_child_is_ready_once_it_says_so(child_of: Callable[..., Child], tmp_path: Path) -> None:
    child = child_of("sleep 60", is_ready=(tmp_path / "flag").exists)
    child.start(0.0)
    child.tick(1.0)
    assert child.state == ChildState.STARTING
    (tmp_path / "flag").touch()
    child.tick(2.0)
    assert child.state == ChildState.READY


def test_the_delay_doubles_with_each_early_death_up_to_a_limit(child_of: Callable[..., Child]) -> None:
    child = child_of("exit 3")
    now, delays = 0.0, []
    child.start(now)
    for _ in range(9):
        until_exit(child)
        news = child.tick(now)
        assert news is not None
        assert "exit code 3" in news
        began = now
        while child.state == ChildState.WAITING:
            now += FIRST_DELAY_S
            child.tick(now)
        delays.append(now - began)
    assert delays == [min(LONGEST_DELAY_S, FIRST_DELAY_S * 2**n) for n in range(9)]
    assert child.restarts == 9


def test_a_child_that_ran_steadily_starts_again_at_once(child_of: Callable[..., Child]) -> None:
    child = child_of("exit 0")
    child.start(0.0)
    until_exit(child)
    child.tick(1.0)
    child.tick(1.0 + FIRST_DELAY_S)
    until_exit(child)
    child.tick(1.0 + FIRST_DELAY_S + STEADY_S)
    child.tick(1.0 + FIRST_DELAY_S + STEADY_S)
    assert (child.state, child.restarts, child.failures) == (ChildState.STARTING, 2, 0)


def test_a_killed_child_leaves_no_children_of_its_own(child_of: Callable[..., Child], tmp_path: Path) -> None:
    child = child_of("sleep 60 & echo $!; wait")
    child.start(0.0)
    deadline = time.monotonic() + 10
    while not child.log.read_text().strip() and time.monotonic() < deadline:
        time.sleep(0.01)
    grandchild = identify(int(child.log.read_text()))
    assert grandchild is not None
    assert child.process is not None
    child.process.send_signal(signal.SIGKILL)
    until_exit(child)
    news = child.tick(1.0)
    assert news is not None
    assert "SIGKILL" in news
    assert wait_until_gone([grandchild], 10) == []


def test_a_child_that_does_not_answer_is_killed_after_a_while(child_of: Callable[..., Child]) -> None:
    child = child_of("sleep 60", is_healthy=lambda: False)
    child.start(0.0)
    child.tick(0.0)
    now, news = 0.0, None
    while news is None and now < 10 * UNHEALTHY_S:
        now += HEALTH_INTERVAL_S
        news = child.tick(now)
    assert news == f"did not answer for {now:.0f} s and was killed"
    assert UNHEALTHY_S < now <= UNHEALTHY_S + HEALTH_INTERVAL_S
    until_exit(child)


def test_a_command_that_succeeds_runs_once(child_of: Callable[..., Child]) -> None:
    child = child_of("exit 0", once=True)
    child.start(0.0)
    until_exit(child)
    assert child.tick(1.0) == "done"
    child.tick(100.0)
    assert (child.state, child.restarts) == (ChildState.DONE, 0)


def test_a_command_that_fails_is_given_up_in_the_end(child_of: Callable[..., Child]) -> None:
    child = child_of("exit 1", once=True)
    now = 0.0
    child.start(now)
    while child.state != ChildState.FAILED and now < 1000:
        if child.state != ChildState.WAITING:
            until_exit(child)
        child.tick(now)
        now += 1.0
    assert child.restarts == MOST_TRIES_ONCE - 1


def test_children_stop_side_by_side_and_the_stubborn_by_force(child_of: Callable[..., Child]) -> None:
    stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    children = [child_of(stubborn, stop=((signal.SIGTERM, 0.3),)) for _ in range(3)]
    for child in children:
        child.start(0.0)
    deadline = time.monotonic() + 10
    while children[0].log.read_text().count("up") < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    stop_together(children)
    assert [child.process and child.process.returncode for child in children] == [-signal.SIGKILL] * 3
    assert {child.state for child in children} == {ChildState.STOPPED}


def test_a_second_signal_is_sent_when_the_first_was_not_enough(child_of: Callable[..., Child]) -> None:
    script = "trap '' TERM; trap 'exit 7' USR1; echo up; while :; do sleep 0.05; done"
    child = child_of(script, stop=((signal.SIGTERM, 0.2), (signal.SIGUSR1, 20)))
    child.start(0.0)
    deadline = time.monotonic() + 10
    while not child.log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    stop_together([child])
    assert child.process is not None
    with contextlib.suppress(ProcessLookupError):
        child.kill_group()
    assert child.process.returncode == 7
