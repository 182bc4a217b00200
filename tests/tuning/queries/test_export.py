import csv
import io

import pyarrow.parquet
import pytest

from tuning.models import Trial
from tuning.queries.export import cell, trials_csv, trials_parquet
from tuning.queries.trials import filter_trials


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1+1", "'+1+1"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("plain", "plain"),
        (-3.5, -3.5),
        (0, 0),
        (None, ""),
        (True, "true"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_text_that_would_run_as_a_formula_is_quoted_and_numbers_stay(value, written):
    assert cell(value) == written


def test_the_csv_has_every_trial_and_one_column_per_hyperparameter(job, trials):
    rows = list(csv.DictReader(io.StringIO(trials_csv(job, filter_trials(job, {})).decode(), newline="")))
    assert len(rows) == len(trials)
    assert list(rows[0])[:4] == ["trial", "state", "reason", "metric"]
    assert list(rows[0])[8:] == ["config.act", "config.batch_size", "config.lr", "config.only_some"]
    assert [float(r["config.lr"]) for r in rows] == [t.config["lr"] for t in trials]
    assert [r["metric"] for r in rows] == ["" if t.metric is None else str(t.metric) for t in trials]


def test_a_malicious_name_and_reason_come_out_harmless(job):
    Trial.objects.create(
        job=job, number=0, config={"=cmd()": "=1+1", "x": -2.5}, reason='@x,"y"\nz', state="failed"
    )
    header, row = csv.reader(io.StringIO(trials_csv(job, filter_trials(job, {})).decode(), newline=""))
    assert header[8:] == ["config.=cmd()", "config.x"]
    assert row[2] == '\'@x,"y"\nz'
    assert row[8:] == ["'=1+1", "-2.5"]


def test_the_parquet_keeps_types_and_turns_mixed_values_into_json(job, trials):
    table = pyarrow.parquet.read_table(io.BytesIO(trials_parquet(job, filter_trials(job, {}))))
    assert table.column("trial").to_pylist() == list(range(len(trials)))
    assert table.column("metric").to_pylist() == [t.metric for t in trials]
    assert str(table.schema.field("config.lr").type) == "double"
    assert str(table.schema.field("config.batch_size").type) == "int64"
    assert set(table.column("config.act").to_pylist()) == {'"relu"', '"tanh"', "true", "3", "[1, 2]", None}


@pytest.mark.parametrize("write", [trials_csv, trials_parquet])
def test_a_study_without_trials_gives_a_file_with_columns_only(job, write):
    content = write(job, filter_trials(job, {}))
    if write is trials_csv:
        assert content.decode().count("\r\n") == 1
    else:
        assert pyarrow.parquet.read_table(io.BytesIO(content)).num_rows == 0


def test_filters_hold_for_files_too(job, trials):
    rows = filter_trials(job, {"state": "failed"})
    assert trials_csv(job, rows).decode().count("\r\n") == 1 + sum(t.state == "failed" for t in trials)
