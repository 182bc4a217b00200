"""What `forebay bench bubbles` makes of what it has seen, and its simulated part."""

import json

import pytest
from click.testing import CliRunner

from forebay.cli.bench.bubbles import command
from forebay.cli.bench.bubbles_figures import figures_of, lines_of
from forebay.cli.bench.bubbles_run import GUEST_ALONE, MODES, Measured, Segment
from workers.squeezer.board import Passed, Totals

SLOWER = {"blind": 1.5, "nice 19": 1.1, "squeezer": 1.005}


def iterations(begun_s: float, seconds: float, count: int) -> list[dict]:
    chunks = [
        {"type": kind, "microbatch": 0, "stage": stage, "seconds": 0.03} for kind in "FB" for stage in (0, 1)
    ]
    return [
        {
            "plan_rank": rank,
            "step": step,
            "started_s": begun_s + step * seconds,
            "ended_s": begun_s + (step + 1) * seconds,
            "chunks": chunks,
            "bubbles": [{"slot": 1, "before": "B0", "seconds": 0.06}],
        }
        for step in range(count)
        for rank in (0, 1)
    ]


def segment(mode: str, number: int) -> Segment:
    found = Segment(mode, number, 100.0 * number, 100.0 * number + 20.0)
    found.iterations = iterations(found.begun_s, 0.2 * SLOWER.get(mode, 1.0), 50)
    used_ns = 0 if mode in ("alone", GUEST_ALONE) else int(3.2e9)
    found.board = [Totals(int(4e9), int(4e9), used_ns, 0, 60)] * 2
    found.passed = [[Passed(2 * i + 1, 1, 0, 0, 0, 500_000, i) for i in range(60)]] * 2
    found.steps = {"alone": 0, GUEST_ALONE: 4000}.get(mode, 640)
    found.guest_cpu_s = 40.0 if mode == GUEST_ALONE else 6.5 if used_ns else 0.0
    return found


def measured(**changes) -> Measured:
    given = {
        "segments": [segment(mode, number) for number in range(3) for mode in [*MODES, GUEST_ALONE]],
        "noise": {"busy": 0.01, "steal": 0.0, "load_average_1min": 0.1},
        "losses": {1: 4.0, 2: 3.5, 3: 3.0},
        "losses_alone": {1: 4.0, 2: 3.5},
        "guest_curve": {1: {0: {"loss": 1.0}}},
        "guest_curve_alone": {1: {0: {"loss": 1.0}}},
        "samples": [{"resume_s": None}, {"resume_s": {"p50": 1e-4, "p99": 2e-4, "count": 9}}],
    }
    return Measured(**{**given, **changes})


def test_figures_follow_from_what_was_seen() -> None:
    found = figures_of(measured())
    modes = found["modes"]
    assert modes["blind"]["slowdown"] == pytest.approx(0.5)
    assert modes["squeezer"]["slowdown"] == pytest.approx(0.005)
    assert modes["squeezer"]["slowdown_low"] <= 0.005 <= modes["squeezer"]["slowdown_high"] + 1e-12
    assert modes["squeezer"]["utilisation"] == pytest.approx(0.8)
    assert modes["squeezer"]["leak"] == pytest.approx(1 - 6.4 / 6.5)
    assert modes["squeezer"]["guest_relative"] == pytest.approx(0.16)
    assert modes["squeezer"]["pause_p99_s"] == pytest.approx(0.0005)
    assert modes["alone"]["leak"] is None
    assert found["main"]["bubble_share"] == pytest.approx(0.2)
    assert found["resume_s"]["p99"] == 2e-4
    assert found["cold_tax"] == pytest.approx(0.0)
    assert all(found["met"].values())
    assert found["quiet"]
    assert "warnings" not in found
    assert any("squeezer" in line for line in lines_of(found))


def test_a_loss_that_differs_in_its_last_bit_is_seen() -> None:
    found = figures_of(measured(losses={1: 4.0, 2: 3.5000000000000004}))
    assert not found["met"]["losses_equal"]


def test_a_machine_that_others_use_is_called_noisy() -> None:
    found = figures_of(measured(noise={"busy": 0.3, "steal": 0.0, "load_average_1min": 3.0}))
    assert not found["quiet"]
    assert "not quiet" in found["warnings"][0]
    assert "not quiet" in lines_of(found)[0]


def test_what_was_not_seen_is_null_and_no_goal_is_met_by_it() -> None:
    empty = [Segment(mode, 0, 0.0, 0.0) for mode in [*MODES, GUEST_ALONE]]
    found = figures_of(measured(segments=empty, losses={}, guest_curve={}))
    assert set(found["met"].values()) == {None}
    assert lines_of(found)


def test_the_simulated_settings_alone_print_one_document_and_beat_blindness() -> None:
    result = CliRunner().invoke(command, ["--simulated-only", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)["simulated"]
    kinds, pipeline = found["kinds"], found["pipeline"]
    assert kinds["simulated"]
    assert pipeline["simulated"]
    assert kinds["speedup"] >= 1.3
    assert all(row["speedup"] > 1.0 for row in pipeline["rows"])
    # a guest can use nearly the whole of bubbles that are long for its step: (p - 1) / (m + p - 1)
    assert pipeline["whole_bubble_speeds"][-1] == pytest.approx(3 / 7, abs=0.02)
