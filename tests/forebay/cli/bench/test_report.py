"""What every bench shares: interleaved rounds, options, and one strict JSON document."""

import json

import click
import pytest
from click.testing import CliRunner

from forebay.cli.bench import BENCHES, command, report


def test_rounds_are_interleaved_and_begin_with_another_case_each_time():
    order = []

    def case(name):
        return lambda: order.append(name)

    times = report.interleaved({name: case(name) for name in "abc"}, 3)
    assert "".join(order) == "cab" + "abc" + "bca" + "cab"
    assert [len(found.seconds) for found in times.values()] == [3, 3, 3]


def test_a_case_may_measure_itself():
    seconds = iter([9.0, 1.0, 5.0, 2.0])
    times = report.interleaved({"case": lambda: next(seconds)}, 3)
    assert times["case"].as_dict() == {"median_s": 2.0, "min_s": 1.0, "max_s": 5.0}


def test_the_machine_is_described():
    described = report.machine()
    assert described["cores"] >= described["usable_cores"] >= 1
    assert described["memory_bytes"] > 2**20
    assert described["packages"]["torch"]


@click.command()
@report.options(rounds=7, quick_rounds=3)
def bench(as_json, quick, rounds):
    report.show("sample", rounds, quick, as_json, {"speed": float("nan")}, ["a line"])


@pytest.mark.parametrize(
    ("options", "rounds"),
    [([], 7), (["--quick"], 3), (["--quick", "--rounds", "5"], 5)],
)
def test_json_is_one_strict_document_with_machine_and_rounds(options, rounds):
    result = CliRunner().invoke(bench, ["--json", *options])
    document = json.loads(result.stdout)
    assert (document["bench"], document["rounds"], document["speed"]) == ("sample", rounds, None)
    assert document["machine"]["cpu"]
    assert document["warnings"] == ["/speed is not a finite number"]


def test_people_get_lines_and_the_machine_on_standard_error():
    result = CliRunner().invoke(bench, [])
    assert result.stdout == "a line\n"
    assert "medians of 7 interleaved rounds" in result.stderr


@pytest.mark.parametrize("arguments", [["nope"], ["fusion", "--rounds", "0"], ["fusion", "--rounds", "x"]])
def test_bad_usage_is_exit_code_2(arguments):
    assert CliRunner().invoke(command, arguments).exit_code == 2


def test_every_bench_of_the_contract_is_listed():
    expected = {"tune", "fusion", "bubbles", "detect", "plan", "overlap", "schedule", "platform"}
    assert expected <= set(BENCHES)
    assert all(name in CliRunner().invoke(command, ["--help"]).stdout for name in expected)


def test_tables_align_their_columns():
    assert report.table(("name", "speed"), [("a", 1.23456), ("long one", 2)]) == [
        "name      speed",
        "a         1.23",
        "long one  2",
    ]
