"""`forebay overlap` as a script sees it: one JSON document, exit codes, one sentence for bad input."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.cli.main import main

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "overlap.json"


def tile(number):
    return [
        {"id": f"a{number}", "kind": "compute", "time": 4.0, "inputs": [], "bytes": 1024, "tile": number},
        {"id": f"r{number}", "kind": "comm", "group": "tp", "time": 3.0, "inputs": [f"a{number}"],
         "bytes": 1024, "tile": number},
        {"id": f"w{number}", "kind": "wait", "inputs": [f"r{number}"], "tile": number},
    ]  # fmt: skip


GRAPH = {"nodes": [*tile(0), *tile(1)], "outputs": ["w0", "w1"], "memory_budget": None}


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line with a graph on standard input; returns exit code, output, messages."""

    def call(*arguments, graph="-", text=None):
        monkeypatch.setattr(sys, "argv", ["forebay", "overlap", str(graph), *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(GRAPH) if text is None else text))
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


@pytest.mark.parametrize(
    ("policy", "makespan"), [("serial", 14.0), ("round-robin", 11.0), ("exact", 11.0), ("bucketed", 11.0)]
)
def test_every_policy_prints_the_plan(run, policy, makespan) -> None:
    code, out, err = run("--policy", policy, "--json")
    plan = json.loads(out)
    assert (code, err) == (0, "")
    assert (plan["policy"], plan["makespan"], plan["serial_makespan"]) == (policy, makespan, 14.0)
    assert (plan["lower_bound"], plan["critical_path"]) == (11.0, 7.0)
    assert sorted(plan["order"]) == ["a0", "a1", "r0", "r1", "w0", "w1"]
    assert plan["buckets"] == []
    assert set(plan) >= {"exact", "peak_bytes", "exposed_comm", "compute_idle", "decisions"}


def test_people_get_a_summary_beside_the_document(run) -> None:
    code, out, err = run("--policy", "exact", graph=EXAMPLE)
    assert code == 0
    assert json.loads(out)["exact"]
    assert "makespan 0.0264 (given order 0.0369, 1.4x)" in err
    assert "stays exposed because" in err


def test_the_trace_has_a_thread_for_each_stream_arrows_and_a_counter(run, tmp_path) -> None:
    path = tmp_path / "trace.json"
    assert run("--policy", "round-robin", "--chrome", path)[0] == 0
    events = json.loads(path.read_text())["traceEvents"]
    slices = {event["name"]: event for event in events if event["ph"] == "X"}
    assert (slices["r1"]["ts"], slices["r1"]["dur"], slices["r1"]["tid"]) == (8e6, 3e6, 1)
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name"] == [
        "compute",
        "comm tp",
    ]
    starts = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(ends[arrow] >= start for arrow, start in starts.items())
    assert max(event["args"]["live"] for event in events if event["ph"] == "C") == 4096


def test_a_budget_that_nothing_fits_into_fails_with_the_smallest_peak(run) -> None:
    for policy in ("serial", "round-robin", "exact", "bucketed"):
        code, out, _ = run("--policy", policy, text=json.dumps({**GRAPH, "memory_budget": 3071}))
        assert (code, json.loads(out)["smallest_peak_bytes"]) == (1, 3072)
        code, out, _ = run("--policy", policy, text=json.dumps({**GRAPH, "memory_budget": 3072}))
        assert (code, json.loads(out)["peak_bytes"]) == (0, 3072)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "JSON object"),
        ('{"nodes": [{"id": "a", "kind": "compute", "time": NaN}]}', "node a: time has to be finite"),
        ('{"nodes": [{"id": "a", "kind": "compute", "time": 1, "inputs": ["a"]}]}', "a is on a cycle"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_exit_code_two(run, text, message) -> None:
    code, out, err = run("--json", text=text)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_file_that_is_not_there_and_a_trace_that_cannot_be_written_are_bad_input(run, tmp_path) -> None:
    assert run("--json", graph=tmp_path / "none.json")[0] == 2
    code, out, err = run("--json", "--chrome", tmp_path / "none" / "trace.json")
    assert (code, out) == (2, "")
    assert "--chrome" in err


def test_an_empty_graph_has_an_empty_plan(run) -> None:
    code, out, _ = run("--json", text='{"nodes": []}')
    plan = json.loads(out)
    assert (code, plan["order"], plan["makespan"], plan["peak_bytes"]) == (0, [], 0.0, 0)


def test_the_command_loads_neither_torch_nor_django() -> None:
    script = (
        "import sys, forebay.cli.overlap, jobs.core.overlap;"
        "print([name for name in ('torch', 'django', 'celery', 'scipy', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_bench_reproduces_the_published_chain_and_prints_every_figure(monkeypatch) -> None:
    from forebay.cli.bench import overlap, overlap_cases

    rows = overlap_cases.published_chain()
    assert [row["round_robin"] for row in rows] == [13.5, 25.5, 30.0, 42.0, 58.0, 49.5]
    assert [row["serial"] for row in rows] == [18.0, 36.0, 48.0, 64.0, 96.0, 96.0]
    monkeypatch.setattr(overlap_cases, "STAGES", (2, 4))
    chains = overlap_cases.random_chains(4)
    assert all(row["proven"] == 4 for row in chains)
    assert all(row["bucketed_over_exact_mean"] == 0.0 <= row["round_robin_over_exact_mean"] for row in chains)
    printed = "\n".join(overlap._lines({"chains": chains, "table": rows}))
    assert all(name in printed for name in (*chains[0], *rows[0]))
