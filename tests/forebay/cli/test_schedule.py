"""`forebay schedule` as a user and a script see it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forebay.cli.schedule import command

TRACE = "job_id,submit_s,num_gpus,duration_s,user,deadline_s,type\n"
KEYS = [
    "jobs",
    "completed",
    "refused",
    "avg_jct_s",
    "p99_jct_s",
    "avg_queue_s",
    "makespan_s",
    "gpu_utilisation",
    "preemptions",
    "deadline_miss_rate",
    "wall_s",
]


@pytest.fixture
def schedule(tmp_path):
    def run(rows: str, *options: str) -> Result:
        (tmp_path / "trace.csv").write_text(TRACE + rows)
        return CliRunner().invoke(command, ["--trace", str(tmp_path / "trace.csv"), *options])

    return run


def figures(result: Result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_documented_keys_and_their_values(schedule):
    found = figures(
        schedule(
            "a,0,8,10,u,,\nb,5,8,10,u,12,\nc,5,0,3,u,,\nd,5,9,1,u,,\n",
            "--policy",
            "fifo",
            "--gpus",
            "8",
            "--json",
        )
    )
    assert list(found)[: len(KEYS)] == KEYS
    del found["wall_s"]
    assert {key: found[key] for key in KEYS[:-1]} == {
        "jobs": 4,
        "completed": 3,
        "refused": 1,
        "avg_jct_s": pytest.approx((10 + 15 + 3) / 3),
        "p99_jct_s": 15.0,
        "avg_queue_s": pytest.approx(5 / 3),
        "makespan_s": 20.0,
        "gpu_utilisation": 1.0,
        "preemptions": 0,
        "deadline_miss_rate": 1.0,
    }


def test_where_nothing_completes_the_means_are_null(schedule):
    found = figures(schedule("a,0,9,10,u,,\n", "--policy", "fifo", "--gpus", "8", "--json"))
    assert (found["completed"], found["avg_jct_s"], found["makespan_s"]) == (0, None, None)


def test_admission_refuses_what_would_be_late(schedule):
    rows = "a,0,8,10,u,10,\nb,0,8,10,u,15,\nc,0,8,5,u,,\n"
    found = figures(schedule(rows, "--policy", "deadline", "--gpus", "8", "--json"))
    assert (found["refused"], found["deadline_miss_rate"], found["completed"]) == (1, 0.0, 2)


def test_a_stop_costs_what_is_asked(schedule):
    rows = "a,0,8,100,u,,\nb,10,8,5,u,,\n"
    free = figures(schedule(rows, "--policy", "srtf", "--gpus", "8", "--json"))
    paid = figures(schedule(rows, "--policy", "srtf", "--gpus", "8", "--json", "--preemption-cost", "7.5"))
    helios = figures(
        schedule(rows, "--policy", "srtf", "--gpus", "8", "--json", "--preemption-cost", "helios")
    )
    assert (free["makespan_s"], paid["makespan_s"], helios["makespan_s"]) == (105.0, 112.5, 135.0)
    assert paid["preemptions"] == 1


def test_nodes_of_two_kinds_from_a_file(schedule, tmp_path):
    (tmp_path / "nodes.csv").write_text("node,gpus,type\nx,4,a\ny,8,b\n")
    rows = "1,0,4,10,u,,a\n2,0,4,10,u,,a\n3,0,8,10,u,,b\n4,0,8,10,u,,a\n"
    found = figures(schedule(rows, "--policy", "fifo", "--nodes", str(tmp_path / "nodes.csv"), "--json"))
    assert (found["completed"], found["refused"], found["makespan_s"]) == (3, 1, 20.0)


def test_other_column_names_and_minutes(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("job_id,num_gpu,submit_time,duration\na,1,1,2\n")
    options = [
        "--columns",
        "num_gpus=num_gpu, submit_s=submit_time,duration_s=duration",
        "--time-unit",
        "minutes",
    ]
    found = figures(
        CliRunner().invoke(
            command, ["--trace", str(path), "--policy", "sjf", "--gpus", "1", "--json", *options]
        )
    )
    assert found["avg_jct_s"] == 120.0


def test_for_people_the_figures_are_lines(schedule):
    result = schedule("a,0,1,10,u,,\na,0,1,10,u,,\n", "--policy", "las", "--gpus", "1")
    assert result.exit_code == 0
    assert "avg_jct_s" in result.stdout
    assert "deadline_miss_rate   -" in result.stdout
    assert "'a' occurs more than once" in result.stderr


def test_the_policies_are_listed():
    result = CliRunner().invoke(command, ["--list"])
    assert result.exit_code == 0
    assert {line.split()[0] for line in result.stdout.splitlines()} >= {"fifo", "las", "deadline", "backfill"}


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("a,0,1.5,5,u,,\n", [], "row 1, num_gpus"),
        ("a,0,1,5,u,,\nb,0,-1,5,u,,\n", [], "row 2, num_gpus"),
        ("a,0,1,nan,u,,\n", [], "row 1, duration_s"),
        ("a,0,1,5,u,inf,\n", [], "row 1, deadline_s"),
        ("", [], "no jobs"),
        ("a,0,1,5,u,,\n", ["--columns", "gpus=num_gpu"], "columns: 'gpus=num_gpu'"),
        ("a,0,1,5,u,,\n", ["--columns", "num_gpus=nope"], "num_gpus: the file has no column 'nope'"),
        ("a,0,1,5,u,,\n", ["--preemption-cost", "nan"], "preemption-cost"),
        ("a,0,1,5,u,,\n", ["--preemption-cost", "-1"], "preemption-cost"),
        ("a,0,1,5,u,,\n", ["--placement", "x"], "'x' is none of consolidated, relaxed"),
        ("a,0,1,5,u,,\n", ["--gpus", "0"], "gpus: at least 1"),
        ("a,0,1,5,u,,\n", ["--gpus-per-node", "0"], "gpus-per-node: at least 1"),
        ("a,0,1,5,u,,\n", ["--nodes", "x.csv"], "either --gpus or --nodes"),
        ("a,0,1,5,u,,\n", ["--policy", "x"], "policy: 'x' is none of fifo"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(schedule, rows, options, said):
    result = schedule(rows, "--policy", "fifo", "--gpus", "8", "--json", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("path", ["missing.csv", "/", "/dev/null"])
def test_a_file_that_is_none_is_exit_code_2(path):
    result = CliRunner().invoke(command, ["--trace", path, "--policy", "fifo", "--gpus", "8"])
    assert (result.exit_code, "file:" in result.stderr) == (2, True)


def test_the_module_is_light():
    source = Path(__import__("forebay.cli.schedule", fromlist=["x"]).__file__).read_text()
    top = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert all("numpy" not in line and "cluster" not in line for line in top)
