"""Announcements, permissions and lengths, in one process."""

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.squeezer.board import Board
from workers.squeezer.errors import SqueezerError
from workers.squeezer.gate import CLOSED, FREE, PAUSED, RUNNING, Gate, GuestGate
from workers.squeezer.lender import Lender
from workers.squeezer.lengths import ENOUGH, SlotLengths


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "boards" / "rank-0.board"


def lend(path: Path, **arguments: object) -> tuple[Lender, Board]:
    return Lender(path, **{"least_s": 0.0, "free_bytes": lambda: 123, **arguments}), Board(path)


def test_a_slot_is_announced_once_its_length_is_known(path: Path) -> None:
    lender, board = lend(path)
    for occurrence in range(ENOUGH + 2):
        lender.on_bubble_enter(4)
        found = board.read()
        assert (found is not None) == (occurrence >= ENOUGH)
        if found is not None:
            assert (found.slot, found.free_bytes, found.turn % 2) == (4, 123, 1)
            assert found.expected_ns > 0
        lender.on_bubble_exit(4)
        assert board.read() is None
    assert [bubble.slot for bubble in board.passed(0)] == [4, 4]
    assert board.totals().bubbles == 2
    assert board.totals().waited_ns > board.totals().lent_ns > 0


def test_short_waits_are_counted_and_not_announced(path: Path) -> None:
    lender, board = lend(path, least_s=10.0)
    for _ in range(10):
        with lender.bubble(0):
            pass
    assert board.turn == 0
    assert board.totals().waited_ns > 0


def test_iterations_are_counted_where_the_slots_begin_anew(path: Path) -> None:
    lender, board = lend(path)
    for _ in range(5):
        for slot in (1, 3, 7):
            with lender.bubble(slot):
                pass
    assert [(bubble.round, bubble.slot) for bubble in board.passed(0)] == [
        (number, slot) for number in (3, 4) for slot in (1, 3, 7)
    ]


def test_a_new_epoch_learns_lengths_anew(path: Path) -> None:
    lender, board = lend(path)
    for _ in range(5):
        with lender.bubble(0):
            pass
    turn = board.turn
    lender.begin_epoch(3)
    assert board.epoch == 3
    for _ in range(ENOUGH):
        with lender.bubble(0):
            assert board.read() is None
    assert board.turn == turn


def test_an_exception_ends_the_bubble(path: Path) -> None:
    lender, board = lend(path)
    for _ in range(ENOUGH):
        with lender.bubble(0):
            pass
    with pytest.raises(RuntimeError), lender.bubble(0):
        assert board.turn % 2 == 1
        raise RuntimeError
    assert board.turn % 2 == 0


def test_farewell_ends_an_open_bubble(path: Path) -> None:
    lender, board = lend(path)
    for _ in range(ENOUGH):
        with lender.bubble(0):
            pass
    lender.on_bubble_enter(0)
    lender.close()
    assert board.turn % 2 == 0
    assert board.closed
    assert board.owner[0] == os.getpid()


def test_the_board_remembers_the_last_bubbles_only(path: Path) -> None:
    lender, board = lend(path)
    for _ in range(600):
        with lender.bubble(0):
            pass
    turns = [bubble.turn for bubble in board.passed(0)]
    assert len(turns) > 200
    assert turns == list(range(turns[0], turns[-1] + 1, 2))
    assert turns[-1] == board.turn - 1
    assert board.passed(turns[-1]) == []


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60))
def test_a_length_is_the_tenth_percentile_of_the_last_twenty(lengths: list[int]) -> None:
    known = SlotLengths()
    for length in lengths:
        known.note(7, length)
    last = sorted(lengths[-20:])
    if len(lengths) < ENOUGH:
        assert known.low_ns(7) == 0
    else:
        low = known.low_ns(7)
        assert low in last
        assert sum(length <= low for length in last) >= 0.1 * len(last)
        assert sum(length < low for length in last) < 0.1 * len(last)
    assert known.low_ns(8) == 0


@pytest.mark.parametrize("content", [b"", b"x" * 4096, bytes(100_000)])
def test_a_file_that_is_no_board_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.board"
    path.write_bytes(content)
    with pytest.raises(SqueezerError, match="odd.board"):
        Board(path)


@pytest.mark.parametrize(
    ("took_ms", "known_ms"),
    [
        ([], 0.0),
        ([3, 4], 0.0),
        ([3, 4, 5], 4.0),
        ([4, 4, 900, 4, 4], 4.0),  # an evaluation between two epochs
        ([1] * 9 + [8] * 5, 8.0),  # the step has become longer
    ],
)
def test_a_guest_knows_its_step_by_the_median_of_the_last_ones(path, monkeypatch, took_ms, known_ms) -> None:
    lend(path)
    gate = Gate(path.parent / "a.gate")
    gate.permit(FREE)
    guest, clock_ns = GuestGate(path.parent / "a.gate", path), 1
    monkeypatch.setattr("workers.squeezer.gate.time.process_time_ns", lambda: clock_ns)
    for milliseconds in (0, *took_ms):
        clock_ns += milliseconds * 10**6
        guest.step()
    assert gate.step_s == known_ms / 1e3
    guest.begin()
    assert gate.step_s == 0.0


class Guarded:
    """A guest's gate used by a thread of this process."""

    def __init__(self, gate: Gate, board: Path) -> None:
        self.passed = 0
        self.gate = GuestGate(gate.page.path, board)
        self.stop = False
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.stop:
            self.gate.point()
            self.passed += 1
            time.sleep(0.0005)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_permission_holds_for_its_own_bubble_only(path: Path, tmp_path: Path) -> None:
    lender, board = lend(path)
    gate = Gate(tmp_path / "a.gate")
    guest = Guarded(gate, path)
    guest.thread.start()
    wait_for(lambda: gate.state == PAUSED)
    for _ in range(ENOUGH):
        with lender.bubble(0):
            pass
    assert guest.passed == 0
    lender.on_bubble_enter(0)
    first = board.turn
    gate.permit(first)
    wait_for(lambda: guest.passed > 3)
    assert gate.state == RUNNING
    lender.on_bubble_exit(0)  # nobody tells the guest
    assert gate.await_pause(60)
    count = guest.passed
    lender.on_bubble_enter(0)
    gate.permit(first)  # a command of the bubble before comes late
    time.sleep(0.01)
    assert guest.passed == count
    gate.permit(board.turn, until_ns=time.monotonic_ns())  # over already
    time.sleep(0.01)
    assert guest.passed == count
    gate.permit(FREE)
    wait_for(lambda: guest.passed > count)
    gate.permit(CLOSED)
    assert gate.await_pause(60)
    guest.stop = True
    gate.permit(FREE)
    guest.thread.join()
    assert gate.points > 3
