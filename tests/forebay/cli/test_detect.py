"""`forebay detect` as a script sees it: one JSON document, exit codes, one sentence for bad input."""

import io
import json
import math
import sys

import numpy as np
import pytest

from forebay.cli.main import main

EXAMPLE = "examples/steps.jsonl"


@pytest.fixture
def run(monkeypatch, capsys):
    """Call `forebay detect`; returns exit code, standard output, standard error."""

    def call(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["forebay", "detect", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as stop:
            main()
        output = capsys.readouterr()
        return int(stop.value.code or 0), output.out, output.err

    return call


@pytest.fixture
def judge(run):
    """Judge lines; returns the document."""

    def call(rows, *options):
        code, out, err = run("-", "--json", *options, stdin="\n".join(json.dumps(row) for row in rows))
        assert (code, err) == (0, "")
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in strict JSON"))

    return call


def steps(count=80, ranks=4, change=None, seed=0):
    """Lines of a job of one stage; `change(row)` may alter or (None) drop each."""
    rng = np.random.default_rng(seed)
    for step in range(count):
        for rank in range(ranks):
            row = {"step": step, "rank": rank, "node": f"n{rank // 2}", "replica": rank, "stage": 0}
            row["compute_s"] = 0.4 * math.exp(0.02 * rng.standard_normal())
            if change:
                row = change(row)
            if row is not None:
                yield row


def kinds(document):
    return [
        (verdict["kind"], verdict["subject"]["rank"], verdict["state"]) for verdict in document["verdicts"]
    ]


def slowed(row, since=40, factor=2.5, rank=2):
    if row["rank"] == rank and row["step"] >= since:
        row["compute_s"] *= factor
    return row


def test_the_document_has_every_field_of_the_contract(judge):
    document = judge(steps(change=slowed))
    assert set(document) >= {"verdicts", "model", "coverage", "dropped", "warnings"}
    assert set(document["model"]) >= {"alpha", "beta", "mape"}
    assert document["dropped"] == {"non_finite": 0, "unit": 0}
    (verdict,) = document["verdicts"]
    assert verdict["subject"] == {"rank": 2, "replica": 2, "stage": 0, "node": "n1"}
    assert (verdict["kind"], verdict["state"], verdict["first_step"]) == ("device_fail_slow", "open", 40)
    assert verdict["detected_step"] <= 45
    assert verdict["slowdown"] == pytest.approx(2.5, rel=0.03)
    assert all(set(row) == {"test", "value", "threshold", "samples"} for row in verdict["evidence"])


@pytest.mark.parametrize(("end", "code"), [(90, 1), (60, 0)])
def test_an_open_fault_fails_only_when_asked(run, end, code):
    text = "\n".join(json.dumps(slowed(row) if row["step"] < end else row) for row in steps(90))
    assert run("-", stdin=text)[0] == 0
    assert run("-", "--fail-on-verdict", stdin=text)[0] == code


def test_information_is_no_fault(run, judge):
    def imbalance(row):
        row["stage"], row["replica"] = row["rank"] % 4, row["rank"] // 4
        row["compute_s"] *= 2 if row["stage"] == 3 else 1
        return row

    rows = list(steps(ranks=8, change=imbalance))
    assert [v["kind"] for v in judge(rows)["verdicts"]] == ["stage_imbalance"]
    assert run("-", "--fail-on-verdict", stdin="\n".join(map(json.dumps, rows)))[0] == 0


def test_values_that_are_no_durations_are_dropped_and_counted(judge):
    broken = {5: math.nan, 6: math.inf, 7: 0.0, 8: -1.0, 9: None}

    def spoil(row):
        if row["rank"] == 1 and row["step"] in broken:
            row["compute_s"] = broken[row["step"]]
        return row

    document = judge(steps(change=spoil))
    assert document["verdicts"] == []
    assert document["dropped"] == {"non_finite": 5, "unit": 0}
    assert document["coverage"] == pytest.approx(315 / 320)


def test_tagged_pauses_are_ignored_and_untagged_periodic_ones_are_no_fault(judge):
    def pauses(row):
        if row["step"] % 50 == 49:
            row["compute_s"] += 30
        if row["step"] % 100 == 99:
            row.update(tag="checkpoint", compute_s=60)
        return row

    assert judge(steps(250, change=pauses))["verdicts"] == []


@pytest.mark.parametrize("factor", [1e3, 1e6])
def test_another_unit_is_dropped_counted_warned_about_and_blamed_on_nobody(judge, factor):
    document = judge(steps(change=lambda row: slowed(row, since=0, factor=factor)))
    assert document["verdicts"] == []
    assert document["dropped"]["unit"] == 80
    assert any("rank 2" in warning for warning in document["warnings"])


def test_a_short_last_batch_and_ranks_that_finish_are_no_fault(judge):
    def uneven(row):
        row["compute_s"] *= 0.5 if row["step"] == 49 else 1
        return None if row["step"] >= 50 and row["rank"] < 3 else row

    assert judge(steps(52, change=uneven))["verdicts"] == []


def test_warm_up_is_no_baseline(judge):
    def warm(row):
        row["compute_s"] *= {0: 20, 1: 4.5, 2: 1.5}.get(row["step"], 1)
        return row

    assert judge(steps(change=warm))["verdicts"] == []


def heartbeats(seconds, ranks, shift=0.0):
    for second in seconds:
        for rank in ranks:
            yield {"beat": rank, "received_s": second + shift, "progress": second}


def test_a_silent_rank_has_stopped_where_its_steps_said_it_was(judge):
    rows = [
        *steps(3),
        *heartbeats(range(20), range(4)),
        *heartbeats(range(20, 60), (0, 1, 3)),
        {"now_s": 60.0},
    ]
    document = judge(rows)
    assert kinds(document) == [("fail_stop", 2, "open")]
    assert document["verdicts"][0]["subject"] == {"rank": 2, "replica": 2, "stage": 0, "node": "n1"}


def test_step_lines_are_progress(judge):
    rows = [*heartbeats(range(20), range(4))]
    for second in range(20, 144):
        rows += [*heartbeats([second], (0, 1, 3))]
        rows += list(steps(1, change=lambda row: row if row["rank"] == 2 else None))
    assert judge([*rows, {"now_s": 144.0}])["verdicts"] == []


def test_a_monitor_that_was_away_blames_nobody(judge):
    rows = [*heartbeats(range(20), range(4)), {"now_s": 35.0}, *heartbeats(range(35, 50), range(4))]
    assert kinds(judge(rows)) == [("monitor_fault", None, "cleared")]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: is not JSON"),
        ("[1]", "line 2: must be a JSON object"),
        ("7", "line 2: must be a JSON object"),
        ("[" * 100_000, "line 2: "),
        ("{}", "line 2: step is missing"),
        ('{"step": 1, "rank": 0, "replica": 0, "stage": "a", "compute_s": 1}', "line 2: stage"),
        ('{"step": 1, "rank": 0, "replica": 0, "stage": 0, "compute_s": "x"}', "line 2: compute_s"),
        ('{"step": 1, "rank": 0, "replica": 0, "stage": 0, "compute_s": 1, "tag": "t"}', "line 2: tag"),
        ('{"beat": 1}', "line 2: received_s"),
        ('{"beat": null, "received_s": 1}', "line 2: beat"),
        ('{"beat": 1, "received_s": 1, "progress": -1}', "line 2: progress"),
        ('{"now_s": "noon"}', "line 2: now_s"),
    ],
)
def test_garbage_gets_one_sentence_with_its_line_and_field(run, line, says):
    good = json.dumps(next(steps(1)))
    code, out, err = run("-", stdin=f"{good}\n{line}\n")
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_files_that_are_none_are_refused(run, tmp_path):
    binary = tmp_path / "steps.bin"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 100)
    for path in (tmp_path / "absent", tmp_path, binary):
        for form in ("steps", "straggler-analysis"):
            code, out, err = run(path, "--format", form)
            assert (code, out) == (2, ""), (path, form)
            assert str(path) in err


def test_nothing_to_judge_is_said(run, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("")
    code, out, _ = run(empty, "--json")
    assert code == 0
    assert json.loads(out)["warnings"] == ["the file holds neither steps nor heartbeats"]


@pytest.mark.parametrize(
    ("name", "expected", "slowdown"),
    [
        ("AR", ("device_fail_slow", 0, 0), 2.5),
        ("SE", ("workload_noise", None, None), None),
        ("ST", ("stage_imbalance", None, 3), 2.1),
    ],
)
def test_public_traces_get_the_verdict_their_cause_deserves(run, shared_dir, name, expected, slowdown):
    path = shared_dir / "traces" / "stragglers" / f"trace-{name}.parquet"
    code, out, _ = run(path, "--format", "straggler-analysis", "--json")
    assert code == 0
    (verdict,) = json.loads(out)["verdicts"]
    assert (verdict["kind"], verdict["subject"]["replica"], verdict["subject"]["stage"]) == expected
    if slowdown:
        assert verdict["slowdown"] == pytest.approx(slowdown, rel=0.03)


def test_the_example_shows_a_slow_device_and_a_recovery(run, request):
    code, out, err = run(request.config.rootpath / EXAMPLE)
    assert code == 0
    assert kinds(json.loads(out)) == [("workload_noise", None, "open"), ("device_fail_slow", 3, "cleared")]
    assert "device fail slow: rank 3" in err
