"""`forebay bench schedule`: what it measures without any trace, and on which state."""

import json

import pytest
from click.testing import CliRunner

from forebay.cli.bench.schedule import command
from forebay.cli.bench.schedule_cases import crowded_state


def test_without_traces_the_rest_is_measured_and_what_is_left_out_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOREBAY_TRACES", raising=False)
    result = CliRunner().invoke(command, ["--quick", "--json", "--traces", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len(found["warnings"]) == 6
    (erlang,) = found["closed_forms"]
    assert erlang["wait_s"] == pytest.approx(erlang["erlang_c_wait_s"], rel=0.1)
    assert {row["policy"] for row in found["live_decision"]} == {"fair", "fifo", "las", "backfill"}


def test_the_crowded_state_is_as_large_as_it_says():
    state = crowded_state()
    assert sum(node.devices for node in state.nodes) == 10_000
    assert sum(not job.running for job in state.jobs) == 1000
    held = {(piece.node, piece.device) for job in state.jobs for piece in job.placement}
    assert len(held) == sum(len(job.placement) for job in state.jobs)
