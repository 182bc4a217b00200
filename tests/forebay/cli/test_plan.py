"""`forebay plan` as a script sees it: one JSON document, exit codes, one sentence for bad input."""

import io
import json
import subprocess
import sys

import pytest

from forebay.cli.main import main

GOOD = {
    "devices": [
        {"id": "g0", "node": "n0", "speed": 1.0, "memory": 3.0},
        {"id": "g1", "node": "n0", "speed": 0.5, "memory": 3.0},
    ],
    "layers": {"count": 4, "forward": 1.0, "backward": 2.0, "memory": 1.0},
    "heads": 8,
    "tensor_parallel": {"sizes": [1, 2], "efficiency": {"1": 1.0, "2": 0.95}},
    "replicas": 1,
    "microbatches": 8,
    "current": {"replicas": [{"microbatches": 8, "stages": [{"devices": ["g0", "g1"], "layers": 4}]}]},
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


@pytest.fixture
def instance_file(tmp_path):
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(GOOD))
    return path


def test_the_documented_example_gets_the_documented_answer(run, instance_file):
    code, out, err = run("plan", instance_file, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert {
        key: answer[key] for key in ("iteration_time", "lower_bound", "gap", "optimal", "action", "plan")
    } == {
        "iteration_time": 75.0,
        "lower_bound": 75.0,
        "gap": 0.0,
        "optimal": True,
        "action": "regroup",
        "plan": {
            "replicas": [
                {
                    "microbatches": 8,
                    "stages": [{"devices": ["g0"], "layers": 3}, {"devices": ["g1"], "layers": 1}],
                }
            ],
            "idle": [],
            "dead": [],
        },
    }
    assert answer["current_time"] == pytest.approx(101.05263157894737, rel=1e-12)
    assert answer["planning_s"] >= 0
    assert answer["transition"] == {
        "moved": 2.0,
        "layers": [0, 1, 2, 3],
        "devices": 2,
        "needs_checkpoint": False,
    }
    reasons = {other["name"]: other["reason"] for other in answer["alternatives"]}
    assert reasons["no_action"] == "34.74% slower than the plan"
    assert reasons["exclude_rebalance"].startswith(
        "cannot run: what is left of a replica cannot hold the model"
    )


def test_people_get_a_summary_beside_the_document(run, instance_file):
    code, out, err = run("plan", instance_file)
    assert code == 0
    assert json.loads(out)["optimal"] is True
    assert err == (
        "regroup: iteration time 75 (now 101.053, 1.35x); optimal, proven\n"
        "  replica 0, 8 micro-batches: g0: 3 | g1: 1\n"
    )


def test_an_instance_can_come_from_standard_input(run):
    code, out, _ = run("plan", "-", "--json", stdin=json.dumps(GOOD | {"current": None}))
    answer = json.loads(out)
    assert (code, answer["action"], answer["current_time"], answer["alternatives"]) == (0, None, None, [])


def test_dead_and_idle_devices_are_listed(run):
    devices = [*GOOD["devices"], {"id": "g2", "node": "n0", "speed": 0, "memory": 3}]
    devices.append({"id": "g3", "node": "n1", "speed": 1e-6, "memory": 3})
    code, out, _ = run("plan", "-", "--json", stdin=json.dumps(GOOD | {"devices": devices}))
    plan = json.loads(out)["plan"]
    assert (code, plan["idle"], plan["dead"]) == (0, ["g3"], ["g2"])


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"microbatches": 1, "replicas": 2}, "microbatches"),
        ({"replicas": 3}, "devices"),
        ({"heads": 7, "tensor_parallel": {"sizes": [2], "efficiency": {"2": 1}}}, "heads"),
        ({"tensor_parallel": {"sizes": [4], "efficiency": {"4": 1}}}, "sizes"),
        ({"layers": {"count": 4, "forward": 1, "backward": 2, "memory": 2}}, "memory"),
    ],
)
def test_no_possible_plan_is_exit_code_one_and_a_cause(run, change, cause):
    code, out, err = run("plan", "-", "--json", stdin=json.dumps(GOOD | change))
    answer = json.loads(out)
    assert (code, answer["cause"], err) == (1, cause, "")
    assert answer["error"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[1, 2", "is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "the instance: must be an object, got a list"),
        ("{}", "devices: is missing"),
        (json.dumps(GOOD | {"microbatches": -1}), "microbatches: must be at least 1, got -1"),
        (json.dumps(GOOD).replace("0.5", "NaN"), "devices[1].speed: must be a finite number"),
        (json.dumps(GOOD).replace('"g1"]', '"g9"]'), "'g9' is not a device of the instance"),
        (json.dumps(GOOD).replace('"microbatches": 8,', '"microbatches": 9,', 1), "run 8 micro-batches"),
        ('{"devices": 1' + "0" * 5000 + "}", "is not JSON"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(run, text, words):
    code, out, err = run("plan", "-", "--json", stdin=text)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_files_that_cannot_be_read_are_bad_input(run, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert run("plan", tmp_path / "absent.json")[0] == 2
    assert run("plan", tmp_path)[0] == 2
    assert "is not a text file" in run("plan", tmp_path / "binary")[2]


def test_planning_loads_neither_django_nor_celery_nor_torch(instance_file):
    script = (
        "import sys; sys.argv = ['forebay', 'plan', sys.argv[1], '--json']\n"
        "from forebay.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit: pass\n"
        "print([n for n in ('django', 'celery', 'torch', 'ray') if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, instance_file], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
