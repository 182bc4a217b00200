"""Faults with real processes: the owner never waits, no orphan remains."""

import os
import signal
import sys
from pathlib import Path

import pytest

from workers.squeezer.board import Board
from workers.squeezer.gate import GateView

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, /proc and futexes of Linux")


def test_a_guest_that_crashes_is_reported_and_the_owner_goes_on(setting) -> None:
    setting.own()
    setting.squeeze()
    guest = setting.invite("crashes")
    assert setting.heard("ended", "guest-crashes")[2] == "its process exited with code 3"
    assert setting.gone(guest)
    assert setting.goes_on()


def test_a_guest_that_computes_without_a_pause_point_is_ended(setting) -> None:
    setting.own()
    setting.squeeze(spin_s=0.2)
    guest = setting.invite("spins")
    assert "without a pause point" in setting.heard("ended", "guest-spins")[2]
    assert setting.gone(guest)
    assert setting.goes_on()


def test_a_guest_that_leaks_memory_is_ended_at_its_limit(setting) -> None:
    setting.own()
    setting.squeeze()
    guest = setting.invite("leaks", limit_bytes=80 * 2**20)
    assert setting.heard("ended", "guest-leaks")[2] == "it held more than its 80 MiB"
    assert setting.gone(guest)
    assert setting.goes_on()


def test_when_the_node_runs_out_of_memory_the_guest_goes_first(setting) -> None:
    setting.own()
    setting.squeeze(reserve_bytes=2**60)
    guest = setting.invite("works")
    assert setting.heard("ended", "guest-works")[2] == "the node ran out of memory"
    assert setting.gone(guest)


def test_a_guest_that_ignores_its_gate_is_stopped_outside_bubbles(setting) -> None:
    setting.own()
    setting.squeeze()
    guest = setting.invite("ignores")
    setting.wait_for(lambda: setting.used_ns() > 5e7)
    # seen stopped between two bubbles, and running inside them, again and again
    for _ in range(5):
        setting.wait_for(lambda: setting.state_of(guest) == "T")
        setting.wait_for(lambda: setting.state_of(guest) != "T")
    assert setting.goes_on()


def test_the_children_of_a_guest_end_with_it(setting) -> None:
    setting.own()
    squeezer = setting.squeeze()
    guest = setting.invite("forks")
    child = setting.wait_for(lambda: setting.child_of(guest))
    squeezer.ask("end", "guest-forks")
    setting.wait_for(lambda: setting.gone(guest) and setting.gone(child))


def test_a_guest_whose_step_fits_no_bubble_gets_on_in_pieces(setting) -> None:
    setting.own()
    setting.squeeze()
    setting.invite("strides")
    gate = GateView(Path(setting.heard("started", "guest-strides")[3]))
    # three steps are made before it is known how long they are
    setting.wait_for(lambda: gate.steps > 6)
    assert setting.goes_on()


def test_the_owner_dies_inside_a_bubble(setting) -> None:
    owner = setting.own("die")
    setting.squeeze()
    guest = setting.invite("works")
    owner.wait()
    assert Board(setting.board).turn % 2 == 1
    assert setting.heard("ended", "guest-works")[2] == "its device was taken back"
    assert setting.gone(guest)


@pytest.mark.parametrize("guest_state", ["stopped", "running"])
def test_the_squeezer_is_killed_and_takes_its_guest_along(setting, guest_state: str) -> None:
    setting.own()
    squeezer = setting.squeeze()
    guest = setting.invite("ignores")
    setting.wait_for(lambda: setting.used_ns() > 2e7)
    setting.wait_for(lambda: (setting.state_of(guest) == "T") == (guest_state == "stopped"))
    squeezer.process.kill()
    squeezer.process.wait()
    setting.wait_for(lambda: setting.gone(guest))
    assert setting.goes_on()


def test_a_squeezer_that_hangs_leaves_its_guest_at_the_gate(setting) -> None:
    setting.own()
    squeezer = setting.squeeze()
    setting.invite("works")
    gate = GateView(Path(setting.heard("started", "guest-works")[3]))
    setting.wait_for(lambda: gate.steps > 20)
    os.kill(squeezer.process.pid, signal.SIGSTOP)
    try:
        assert setting.goes_on()  # the bubble of the last permission is over
        before = gate.steps
        assert setting.goes_on()
        # Steps, not seconds: a virtual processor taken away from the last step goes on counting.
        assert gate.steps <= before + 1
    finally:
        os.kill(squeezer.process.pid, signal.SIGCONT)


def test_a_bubble_whose_end_is_never_announced_is_taken_away(setting) -> None:
    setting.own("forget")
    setting.squeeze(outstayed=3.0, outstayed_s=0.2)
    guest = setting.invite("ignores")
    board = Board(setting.board)
    setting.wait_for(lambda: board.turn % 2 == 1 and setting.iterations() == 29)
    setting.wait_for(lambda: setting.state_of(guest) == "T")
    assert board.turn % 2 == 1


def test_bubbles_go_on_after_the_schedule_has_changed(setting) -> None:
    setting.own("change")
    setting.squeeze()
    setting.invite("works")
    board = Board(setting.board)
    setting.wait_for(lambda: board.epoch >= 2)
    before = setting.used_ns()
    setting.wait_for(lambda: board.epoch >= 4 and setting.used_ns() > before)


def test_a_guest_runs_in_the_lowest_class_and_is_the_first_to_go(setting) -> None:
    setting.own()
    setting.squeeze()
    guest = setting.invite("works", scheduling="idle")
    setting.wait_for(lambda: os.sched_getscheduler(guest) == os.SCHED_IDLE)
    assert Path(f"/proc/{guest}/oom_score_adj").read_text().strip() == "1000"
    assert os.getpgid(guest) == guest


def test_lending_is_switched_off_at_once(setting) -> None:
    setting.own()
    squeezer = setting.squeeze()
    setting.invite("works")
    setting.wait_for(lambda: setting.used_ns() > 2e7)
    squeezer.ask("lend", str(setting.board), False)
    assert setting.goes_on()
    before = setting.used_ns()
    assert setting.goes_on()
    assert setting.used_ns() == before
    squeezer.ask("lend", str(setting.board), True)
    setting.wait_for(lambda: setting.used_ns() > before)
