"""Two real gloo processes: the backend of torch.compile, tiles, and plans that differ."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.trainer.overlap.peers import run_peers

PEER = Path(__file__).parent / "compiled_peer.py"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What both ranks of the compiled training loop say."""
    folder = tmp_path_factory.mktemp("compiled")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    children = [
        subprocess.Popen(
            [sys.executable, str(PEER), str(rank), str(folder / "store"), str(folder / f"{rank}.json")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in (0, 1)
    ]
    said = [child.communicate(timeout=500)[0].decode(errors="replace") for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_a_compiled_training_loop_has_the_losses_of_eager_mode(compiled):
    for rank in compiled:
        assert len(rank["losses"]["eager"]) == 4
        assert rank["losses"]["forebay"] == pytest.approx(rank["losses"]["eager"], rel=1e-6)
        assert rank["losses"]["eager"][-1] < rank["losses"]["eager"][0]
    assert compiled[0]["losses"] == compiled[1]["losses"]


def test_forward_and_backward_were_both_scheduled(compiled):
    for rank in compiled:
        assert len(rank["plans"]) == 2
        for plan in rank["plans"]:
            assert any(name.startswith("all_reduce") for name in plan["order"])
            assert plan["makespan"] <= plan["serial_makespan"]


def test_ranks_with_different_plans_are_told_before_anything_runs(compiled):
    for rank in compiled:
        assert "different collectives in group tp; nothing was run" in rank["differing"]


POLICIES = ["serial", "round-robin", "bucketed"]
# Long enough that the small messages of four tiles are merged.
ALPHA_S = 0.004


@pytest.fixture(scope="module")
def measured():
    """What both ranks of a real run over an emulated link say."""
    link = {"alpha_s": ALPHA_S, "bytes_per_s": 1e8}
    request = {"mode": "measure", "program": "tp-transformer", "tiles": 4, "rounds": 1, **link}
    return run_peers({**request, "policies": POLICIES, "random": 1})


def test_tiles_in_any_order_agree_with_the_original_on_real_processes(measured):
    assert len(measured) == 2
    for rank in measured:
        assert 0 < rank["max_rel_error"] < 1e-5
        assert [row["order"] for row in rank["rows"]] == [*POLICIES, "random 0"]
        assert all(row["equals_serial"] for row in rank["rows"])


def test_the_simulator_tells_the_peak_of_real_runs(measured):
    for rank in measured:
        for row in rank["rows"]:
            assert row["estimated_peak_bytes"] == pytest.approx(row["measured_peak_bytes"], rel=0.01)


def test_every_order_is_timed_in_every_round_and_both_ranks_estimate_alike(measured):
    for rank in measured:
        assert all(len(row["times_s"]) == 1 and row["estimated_s"] > 0 for row in rank["rows"])
        assert rank["other_load"] is None or 0 <= rank["other_load"] <= 1
    first, second = ([row["estimated_s"] for row in rank["rows"]] for rank in measured)
    assert first == second


def test_no_order_is_done_before_its_messages_are(measured):
    for rank in measured:
        merged = [row for row in rank["rows"] if row["messages"] < rank["rows"][0]["messages"]]
        assert [row["order"] for row in merged] == ["bucketed"]
        for row in rank["rows"]:
            assert min(row["times_s"]) >= row["messages"] * ALPHA_S
