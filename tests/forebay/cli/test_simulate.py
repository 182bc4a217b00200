"""`forebay simulate` as a script sees it."""

import io
import json
import sys

import pytest

from forebay.cli.main import main

INSTANCE = {
    "devices": [{"id": f"g{i}", "node": "n0", "speed": 1.0, "memory": 9.0} for i in range(4)],
    "layers": {"count": 8, "forward": 1.0, "backward": 2.0, "memory": 1.0},
    "tensor_parallel": {"sizes": [1], "efficiency": {"1": 1.0}},
    "replicas": 2,
    "microbatches": 8,
    "current": {
        "replicas": [
            {
                "microbatches": 4,
                "stages": [{"devices": ["g0"], "layers": 4}, {"devices": ["g1"], "layers": 4}],
            },
            {
                "microbatches": 4,
                "stages": [{"devices": ["g2"], "layers": 4}, {"devices": ["g3"], "layers": 4}],
            },
        ]
    },
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line; returns exit code, standard output, standard error."""

    def call(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["forebay", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


@pytest.mark.parametrize(
    ("schedule", "iteration_time", "kinds"),
    [
        ("1f1b", 60.0, "BF"),
        ("gpipe", 60.0, "BF"),
        ("interleaved", 54.0, "BF"),
        ("zb-h1", 52.0, "BFW"),
        ("zb-v", 50.0, "BFW"),
    ],
)
def test_every_schedule_is_simulated(run, schedule, iteration_time, kinds):
    code, out, err = run("simulate", "-", "--schedule", schedule, "--json", stdin=json.dumps(INSTANCE))
    answer = json.loads(out)
    assert (code, err, answer["iteration_time"]) == (0, "", iteration_time)
    assert len(answer["replicas"]) == 2
    for replica in answer["replicas"]:
        assert replica["makespan"] == iteration_time
        for stage in replica["stages"]:
            assert stage["busy_s"] == 48.0
            idle = sum(bubble["end"] - bubble["start"] for bubble in stage["bubbles"])
            assert idle == iteration_time - 48.0
            assert "".join(sorted({chunk["kind"] for chunk in stage["chunks"]})) == kinds
            assert {chunk["microbatch"] for chunk in stage["chunks"]} == {0, 1, 2, 3}


def test_the_first_chunks_are_where_they_belong(run):
    _, out, _ = run("simulate", "-", "--json", stdin=json.dumps(INSTANCE))
    stage = json.loads(out)["replicas"][0]["stages"][1]
    assert stage["chunks"][0] == {"kind": "F", "microbatch": 0, "model_chunk": 0, "start": 4.0, "end": 8.0}
    assert stage["bubbles"][0] == {"start": 0.0, "end": 4.0, "name": "fill"}


def test_a_plan_is_simulated_in_the_time_it_promises(run, tmp_path):
    instance, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    slow = [*INSTANCE["devices"][:3], INSTANCE["devices"][3] | {"speed": 0.5}]
    instance.write_text(json.dumps(INSTANCE | {"devices": slow, "transfer_s": 0.25}))
    plan.write_text(run("plan", instance, "--json")[1])
    code, out, _ = run("simulate", instance, "--plan", plan, "--json")
    assert code == 0
    assert json.loads(out)["iteration_time"] == pytest.approx(json.loads(plan.read_text())["iteration_time"])


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"current": None}, [], "current: is missing, and no --plan is given"),
        ({"microbatches": 9}, [], "run 8 micro-batches, the instance has 9"),
        (
            {"devices": [*INSTANCE["devices"][:3], INSTANCE["devices"][3] | {"speed": 0}]},
            [],
            "device 'g3' is dead",
        ),
        ({}, ["--schedule", "interleaved", "--model-chunks", "5"], "at least 5 layers on every stage"),
        ({}, ["--schedule", "2f2b"], "2f2b"),
        ({}, ["--plan", "absent.json"], "absent.json"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_words(run, change, options, words):
    code, out, err = run("simulate", "-", "--json", *options, stdin=json.dumps(INSTANCE | change))
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
