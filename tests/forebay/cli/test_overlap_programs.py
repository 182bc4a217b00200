"""`forebay overlap --program`: a program of one's own in a process of its own, and what is refused."""

import json
import sys

import pytest

from forebay.cli.main import main

OWN = """
import forebay
import torch.distributed._functional_collectives as functional


def program():
    def step(params, inputs):
        print("said by the program")
        hidden = (inputs["x"] @ params["up"]).relu()
        return functional.all_reduce(hidden @ params["down"], "sum", "tp").pow(2).mean()

    params = {"up": (8, 16), "down": (16, 8)}
    return forebay.Program(step, params, {"x": (4, 8)}, {"tp": [0, 1, 2, 3]}, {"x": 0}, train=True)


def ends():
    import os

    os._exit(9)
"""


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Call `forebay overlap` beside a module `own_program`; returns exit code, output, messages."""
    (tmp_path / "own_program.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["forebay", "overlap", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


def test_a_program_of_ones_own_is_tiled_checked_and_traced(run, tmp_path):
    code, out, err = run(
        "--program", "own_program:program", "--tiles", 2, "--chrome", tmp_path / "trace.json"
    )
    document = json.loads(out, parse_constant=pytest.fail)
    assert code == 0, err
    assert (document["tiles"], document["untiled"], document["simulated"]) == (2, [], True)
    verification = document["verification"]
    assert verification["ranks"] == 4
    assert verification["max_rel_error"] < 1e-5
    assert verification["reordered_equals_serial"] is True
    assert set(document) >= {"order", "makespan", "serial_makespan", "peak_bytes", "decisions"}
    assert "graphs" not in document
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ranks = {event["name"] for event in events if event["ph"] == "X"}
    assert {"all_reduce_tile0", "all_reduce_tile1"} <= ranks
    assert "4 simulated ranks" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--program", "own_program:ends"], 1, "process ended with exit code 9"),
        (["--program", "no-such-program"], 2, "neither built in"),
        (["--program", "tp-transformer", "--tiles", "0"], 2, "--tiles"),
        (["--program", "tp-transformer", "--cluster", "tpu"], 2, "--cluster: cluster 'tpu' is not known"),
        (["--program", "tp-transformer", "--memory-budget", "-1"], 2, "--memory-budget"),
        (["--program", "tp-transformer", "--slowdown", "nan"], 2, "--slowdown"),
        (["--program", "tp-transformer", "--size", "width"], 2, "--size: 'width' is no NAME=NUMBER"),
        (["--program", "tp-transformer", "--size", "depth=2"], 2, "--size: depth is none of ranks"),
        (["--program", "own_program:program", "--size", "width=8"], 2, "--size: is for built-in programs"),
        (["graph.json", "--program", "tp-transformer"], 2, "give one of them"),
        ([], 2, "--list"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(run, arguments, code, said):
    found, out, err = run(*arguments)
    assert found == code
    assert said in err
    assert "Traceback" not in err
    assert out == ""


def test_the_built_in_programs_are_listed(run):
    code, out, err = run("--list")
    names = [one["name"] for one in json.loads(out)["programs"]]
    assert code == 0
    assert {"tp-transformer", "ulysses-transformer", "ring-transformer", "moe-transformer-inference"} <= set(
        names
    )
    assert all(name in err for name in names)
