"""Job traces: renamed, scaled, and refused with row and field where a cell is wrong."""

import gzip
import math
from pathlib import Path

import pytest

from cluster.core.errors import TraceError
from cluster.core.traces import even_nodes, read_jobs, read_nodes, repeated_ids

HEADER = "job_id,submit_s,num_gpus,duration_s"


def trace(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_rows_are_sorted_by_arrival_then_row(tmp_path):
    jobs = read_jobs(trace(tmp_path, f"{HEADER}\nb,5,1,10\na,1,2,20\nc,5,4,30\n"))
    assert jobs.ids == ["a", "b", "c"]
    assert jobs.devices.tolist() == [2, 1, 4]


def test_a_packed_file_in_minutes_with_other_names_is_the_same_trace(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"id,gpus,start,run,expect\nx,2,3,10,7\n"))
    renames = {
        "job_id": "id",
        "num_gpus": "gpus",
        "submit_s": "start",
        "duration_s": "run",
        "deadline_s": "expect",
    }
    jobs = read_jobs(path, renames=renames, time_unit="minutes")
    assert (jobs.submit_s[0], jobs.duration_s[0], jobs.deadline_s[0]) == (180.0, 600.0, 600.0)


def test_an_empty_deadline_or_type_means_none(tmp_path):
    jobs = read_jobs(trace(tmp_path, f"{HEADER},deadline_s,type\na,0,1,5,,\nb,0,1,5,9,v100\n"))
    assert jobs.deadline_s.tolist() == [math.inf, 9.0]
    assert jobs.kind.tolist() == [-1, 0]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("a,0,1.5,5", "num_gpus"),
        ("a,0,-1,5", "num_gpus"),
        ("a,0,nan,5", "num_gpus"),
        ("a,0,1e400,5", "num_gpus"),
        ("a,0,9223372036854775808,5", "num_gpus"),
        ("a,0,1,nan", "duration_s"),
        ("a,0,1,-5", "duration_s"),
        ("a,0,1,inf", "duration_s"),
        ("a,x,1,5", "submit_s"),
        ("a,0,1", "duration_s"),
        (",0,1,5", "job_id"),
    ],
)
def test_a_wrong_cell_is_named_with_row_and_field(tmp_path, row, field):
    with pytest.raises(TraceError, match=f"row 2, {field}:") as caught:
        read_jobs(trace(tmp_path, f"{HEADER}\nok,0,1,5\n{row}\n"))
    assert (caught.value.row, caught.value.field) == (2, field)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "header"),
        (HEADER + "\n", "no jobs"),
        ("job_id,submit_s,duration_s\na,0,5\n", "num_gpus: the column is missing"),
        ("job_id,job_id,submit_s,num_gpus,duration_s\na,a,0,1,5\n", "more than once"),
    ],
)
def test_a_table_without_what_is_needed_is_refused(tmp_path, text, said):
    with pytest.raises(TraceError, match=said):
        read_jobs(trace(tmp_path, text))


@pytest.mark.parametrize("raw", [b"\x1f\x8bbroken", b"\xff\xfe\x00", b"\x00\x00"])
def test_bytes_that_are_no_table_are_refused(tmp_path, raw):
    path = tmp_path / "trace.csv"
    path.write_bytes(raw)
    with pytest.raises(TraceError):
        read_jobs(path)


def test_a_rename_to_an_absent_column_says_what_the_file_has(tmp_path):
    with pytest.raises(TraceError, match="no column 'gpus'; it has job_id"):
        read_jobs(trace(tmp_path, f"{HEADER}\na,0,1,5\n"), renames={"num_gpus": "gpus"})


def test_a_rename_wins_over_a_column_of_our_own_name(tmp_path):
    path = trace(tmp_path, "job_id,submit_s,num_gpus,duration_s,limit\na,0,1,5,50\n")
    assert read_jobs(path, renames={"duration_s": "limit"}).duration_s[0] == 50.0


def test_a_repeated_id_is_two_jobs_and_is_told(tmp_path):
    jobs = read_jobs(trace(tmp_path, f"{HEADER}\na,0,1,5\na,0,1,5\nb,0,1,5\n"))
    assert (len(jobs), repeated_ids(jobs)) == (3, ["a"])


@pytest.mark.parametrize(("devices", "sizes"), [(16, [8, 8]), (20, [8, 8, 4]), (3, [3])])
def test_the_last_even_node_is_smaller_where_it_does_not_divide(devices, sizes):
    assert [node.devices for node in even_nodes(devices)] == sizes


@pytest.mark.parametrize(("devices", "per_node"), [(0, 8), (-1, 8), (8, 0), (10**9, 1)])
def test_a_cluster_of_no_or_endless_nodes_is_refused(devices, per_node):
    with pytest.raises(TraceError):
        even_nodes(devices, per_node)


@pytest.mark.parametrize(
    ("text", "said"),
    [("node,gpus\na,8\na,8\n", "row 2, node"), ("node,gpus\na,0\n", "no devices"), ("node\na\n", "gpus")],
)
def test_a_wrong_node_file_is_refused(tmp_path, text, said):
    with pytest.raises(TraceError, match=said):
        read_nodes(trace(tmp_path, text))
