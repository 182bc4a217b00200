"""Bubbles as devices of a study: found by their boards, one study to a board."""

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from cluster.core.roles import Role
from cluster.services.devices import record_discovery
from jobs.models import Job
from tuning.core.space import declared_space, uniform
from tuning.core.study import Study, StudyFacts, StudySpec
from tuning.models import Lending
from tuning.services.bubbles import not_lending, switch_lending
from workers.discovery import this_machine
from workers.squeezer.errors import SqueezerError
from workers.squeezer.lender import Lender
from workers.squeezer.lengths import ENOUGH
from workers.squeezer.places import board_path, boards_folder
from workers.training.lending import board_name, lender_of, lenders_of, rank_of, with_boards
from workers.tuner.bubbles import BubbleDevices, board_of, bubbles_first, tell_samples


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOREBAY_BUBBLES", str(tmp_path / "boards"))
    return boards_folder()


@pytest.fixture
def study(db) -> Job:
    record_discovery([this_machine()])
    return Job(pk=uuid4(), kind="study", spec={"bubbles": "only"})


def first_core() -> int:
    return this_machine().devices[0].index


@pytest.fixture
def training(db, demo) -> Job:
    owner = demo.person("ada")
    return demo.training(owner, demo.team_with(owner, Role.RESEARCHER))


def test_the_ranks_of_a_training_job_are_found_as_bubbles_of_their_devices(boards, study, training) -> None:
    rows = [{"rank": 0, "kind": "cpu", "index": first_core()}]
    lender = lenders_of(with_boards(training, rows))(0)()
    devices = BubbleDevices(study, "me", 30.0)
    assert devices.look(set()) == []
    [(label, device)] = devices.labels.items()
    assert label == f"bubble:job-{training.pk}-0"
    assert lender_of(board_name(training.pk, 0)) == str(training.pk)
    assert board_of(label) == str(lender.path)
    assert (device.node.name, device.index) == (socket.gethostname(), first_core())


def test_the_jobs_of_another_platform_of_the_same_user_lend_nothing_here(boards, study) -> None:
    Lender(board_path(board_name(uuid4(), 0)), device=first_core())
    devices = BubbleDevices(study, "me", 30.0)
    devices.look(set())
    assert devices.labels == {}


def test_what_makes_a_rank_lend_loads_no_framework_in_the_rank(boards) -> None:
    make = lenders_of([{"rank": 0, "kind": "cpu", "index": 0, "board": "x"}])(0)
    program = "import pickle, sys; pickle.load(sys.stdin.buffer)(); print('django' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(make), capture_output=True)
    assert made.stdout.split() == [b"False"], made.stderr


def test_a_job_that_does_not_lend_has_no_boards() -> None:
    rows = [{"rank": 0, "kind": "cpu", "index": 0}]
    assert lenders_of(with_boards(Job(spec={"lend_bubbles": False}), rows))(0) is None


def test_a_board_belongs_to_one_study_until_it_is_left(boards, study) -> None:
    lender = Lender(board_path("mine"), device=first_core())
    first, second = BubbleDevices(study, "first", 30.0), BubbleDevices(study, "second", 30.0)
    first.look(set())
    second.look(set())
    assert (set(first.labels), set(second.labels)) == ({"bubble:mine"}, set())
    lender.close()
    assert first.look({"bubble:mine"}) == []
    assert (set(first.labels), set(first.leaving)) == (set(), {"bubble:mine"})
    assert first.look(set()) == ["bubble:mine"]
    assert not first.leaving
    Lender(board_path("mine"), device=first_core())
    second.look(set())
    assert set(second.labels) == {"bubble:mine"}


@pytest.mark.parametrize(("wanted", "found"), [("only", 1), ("allowed", 1), ("no", 0)])
def test_a_study_says_whether_it_uses_bubbles(boards, study, wanted, found) -> None:
    lender = Lender(board_path("mine"), device=first_core())
    study.spec = {"bubbles": wanted}
    devices = BubbleDevices(study, "me", 30.0)
    devices.look(set())
    assert len(devices.labels) == found
    lender.close()


def test_what_a_dead_owner_left_is_no_device_and_is_removed(boards, study) -> None:
    Lender(board_path("dead"), device=first_core())
    words = bytearray(board_path("dead").read_bytes())
    words[8:16] = (2**22 + 1).to_bytes(8, "little")  # beyond the largest process number
    board_path("dead").write_bytes(words)
    os.utime(board_path("dead"), (0, 0))
    devices = BubbleDevices(study, "me", 30.0)
    devices.look(set())
    assert not devices.labels
    assert not board_path("dead").exists()


def test_a_folder_that_others_may_write_into_is_refused(boards) -> None:
    boards.chmod(0o777)
    with pytest.raises(SqueezerError, match="may be written by everybody"):
        boards_folder()


def test_bubbles_come_before_exclusive_devices() -> None:
    assert bubbles_first({"a:cpu:0", "bubble:x", "z:cpu:1"}) == ["bubble:x", "a:cpu:0", "z:cpu:1"]


def lend_of(job: Job) -> Lender:
    lender = Lender(board_path(board_name(job.pk, 0)), device=first_core(), least_s=0.0)
    for _ in range(ENOUGH + 3):
        with lender.bubble(0):
            pass
    return lender


def test_bubbles_whose_lending_is_stopped_are_given_up_at_once_and_found_again_later(
    boards, study, training
) -> None:
    lend_of(training)
    devices = BubbleDevices(study, "me", 30.0)
    devices.look(set())
    [label] = devices.labels
    switch_lending(job_id=training.pk, lending=False, actor="grace")
    assert devices.look({label}) == [label]  # although something runs there
    assert (devices.labels, devices.leaving) == ({}, {})
    assert devices.look(set()) == []
    switch_lending(job_id=training.pk, lending=True, actor="grace")
    devices.look(set())
    assert set(devices.labels) == {label}


def test_how_long_a_step_may_be_is_told_once_it_is_known_and_when_it_has_changed(
    boards, study, training
) -> None:
    lender = lend_of(training)
    devices = BubbleDevices(study, "me", 30.0)
    devices.look(set())
    [label] = devices.labels
    rooms = devices.rooms_changed()
    assert rooms is not None
    assert rooms[label] > 0
    assert devices.rooms_changed() is None
    lender.close()
    devices.look(set())
    assert devices.rooms_changed() == {}


def test_a_job_that_was_slowed_too_much_rests_and_the_study_leaves(boards, demo, training) -> None:
    study = demo.study(training.owner, training.team, trials=2)
    label, reason = f"bubble:{board_name(training.pk, 0)}", "slowdown +5.00%, limit 2.00%"
    brain = Study(StudySpec("tiny"), StudyFacts("accuracy", "max", 2, declared_space({"lr": uniform(0, 1)})))
    row = {
        "epoch": 0, "covers_s": 1.0, "waited_s": 1.0, "lent_s": 1.0, "used_s": 0.5, "leaked_s": 0.0,
        "granted_s": 0.6, "bubbles": 3, "in_pieces": 0,
        "lending": True, "slots": [], "skipped": [], "guests": [],
        "decision": {"action": "keep", "reason": ""},
    }  # fmt: skip
    stopped = {**row, "lending": False, "decision": {"action": "stop", "reason": reason}}
    waiting = {**stopped, "decision": {"action": "wait", "reason": "tried again later"}}
    tell_samples(study, brain, {}, {label: [row, stopped, waiting], "bubble:own": []})
    lending = Lending.objects.get(job=training)
    assert (lending.stops, lending.reason) == (1, reason)
    assert not_lending([training.pk]) == {str(training.pk)}
    assert study.bubble_uses.get().waited_s == 3.0


def test_a_name_that_only_looks_like_a_jobs_is_nobodys() -> None:
    assert lender_of("job-1-2") is None
    assert lender_of("job-") is None
    assert rank_of("own") is None
    assert (lender_of(board_name(uuid4(), 12)) is None, rank_of(board_name(uuid4(), 12))) == (False, 12)
