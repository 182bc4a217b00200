"""A fused container as a guest: it learns exactly what it would learn alone, and leaves with a checkpoint."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuning.core.study.actions import Member
from tuning.core.study.events import Reported, event_from_json
from workers.bubble_process import BubbleProcess
from workers.squeezer.board import Board
from workers.squeezer.rules import Rules
from workers.trainer.container import run_container
from workers.trainer.orders import ContainerOrder, Setting

OWNER = Path(__file__).parents[2] / "squeezer" / "owner_program.py"
EPOCHS, PATIENCE_S = 2, 240.0


def order(run: str, folder: Path, until: int) -> ContainerOrder:
    config = {"lr": 0.1, "momentum": 0.9, "batch_size": 128, "gamma": 0.5}
    setting = Setting("digits-mlp", str(folder), 0, scaling=8, checkpoint_every=10**9, threads=1)
    return ContainerOrder(run, setting, tuple(Member(trial, config, trial) for trial in range(4)), 0, until)


def reports(events: list) -> dict[int, dict]:
    return {event.epoch: event.metrics for event in events if isinstance(event, Reported)}


@pytest.mark.skipif(sys.platform != "linux", reason="boards are made for Linux")
def test_a_guest_trains_bit_for_bit_as_alone_and_leaves_with_a_checkpoint(tmp_path: Path) -> None:
    alone: list = []
    run_container(order("alone", tmp_path, EPOCHS), alone.append)
    board = tmp_path / "a.board"
    owner = subprocess.Popen([sys.executable, str(OWNER), str(board)], stdout=subprocess.DEVNULL)
    process = None
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not board.exists():
            time.sleep(0.01)
        rules = Rules(control_every=0, leave_s=PATIENCE_S)
        process = BubbleProcess(str(board), rules, scheduling="normal", orphaned=lambda: None)
        process.start(order("lent", tmp_path, 10**6))
        documents: list[dict] = []
        samples: list[dict] = []
        while not documents or documents[-1]["event"] != "ContainerEnded":
            assert time.monotonic() < deadline
            documents += process.poll("lent", len(documents))
            samples += process.sampled()
            if owner.poll() is None and sum(d["event"] == "Reported" for d in documents) >= EPOCHS:
                totals = Board(board).totals()
                owner.kill()
        events = [event_from_json(document) for document in documents]
        assert events[-1].outcome == "paused"
        assert Path(events[-1].path).exists()
        lent = reports(events)
        assert {epoch: lent[epoch] for epoch in range(1, EPOCHS + 1)} == reports(alone)
        assert totals.used_ns > totals.leaked_ns
        assert any(sample["utilisation"] for sample in samples)
        assert any(guest["trials"] == 4 for sample in samples for guest in sample["guests"])
    finally:
        owner.kill()
        owner.wait()
        if process is not None:
            process.close()
