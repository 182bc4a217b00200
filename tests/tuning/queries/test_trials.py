import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cluster.core.keyset import InvalidQuery, encode_cursor
from jobs.models import Job
from tuning.models import Trial
from tuning.queries.trials import config_names, filter_trials, trial_page, trial_row

COLUMNS = ["number", "state", "metric", "epochs", "device_seconds", "started_s", "ended_s"]
CONFIG = ["config.lr", "config.batch_size", "config.only_some", "config.absent"]


def value_of(trial, column):
    return trial.config.get(column[7:]) if column.startswith("config.") else getattr(trial, column)


def pages(job, **query):
    cursor, numbers = None, []
    while True:
        page = trial_page(job, cursor=cursor, limit=7, **query)
        numbers += [trial.number for trial in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return numbers, page.total


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("column", COLUMNS + CONFIG)
def test_pages_in_any_order_hold_every_trial_once_sorted_with_nothing_last(job, trials, column, descending):
    filled = [t for t in trials if value_of(t, column) is not None]
    filled.sort(key=lambda t: t.number)
    filled.sort(key=lambda t: value_of(t, column), reverse=descending)
    empty = [t for t in trials if value_of(t, column) is None]
    numbers, total = pages(job, sort=f"-{column}" if descending else column)
    assert numbers == [t.number for t in [*filled, *empty]]
    assert total == len(trials)


@pytest.mark.parametrize("sort", ["config.act", "-config.act"])
def test_a_hyperparameter_of_several_types_is_paged_completely(job, trials, sort):
    numbers, _ = pages(job, sort=sort)
    assert sorted(numbers) == list(range(len(trials)))
    values = [trials[number].config["act"] for number in numbers]
    assert values == sorted(values, key=lambda value: value is None)


@pytest.mark.parametrize(
    ("filters", "keep"),
    [
        ({"state": "completed,failed"}, lambda t: t.state in {"completed", "failed"}),
        ({"state": ["running"]}, lambda t: t.state == "running"),
        ({"number": "7"}, lambda t: t.number == 7),
        ({"number__gte": 10, "number__lte": "20"}, lambda t: 10 <= t.number <= 20),
        ({"metric__gte": "0.5"}, lambda t: t.metric is not None and t.metric >= 0.5),
        ({"config.lr__lte": 0.1}, lambda t: t.config["lr"] <= 0.1),
        ({"config.lr__gte": "1e-2", "config.lr__lte": "0.1"}, lambda t: 0.01 <= t.config["lr"] <= 0.1),
        ({"config.batch_size": "32"}, lambda t: t.config["batch_size"] == 32),
        ({"config.act": "relu"}, lambda t: t.config["act"] == "relu"),
        ({"config.act": "true"}, lambda t: t.config["act"] is True),
        ({"config.act__gte": "1"}, lambda t: t.config["act"] == 3),
        ({"config.act": "[1, 2]"}, lambda t: t.config["act"] == [1, 2]),
        ({"config.only_some__gte": "0"}, lambda t: "only_some" in t.config),
        ({"config.absent": "1"}, lambda t: False),
    ],
)
def test_filters_keep_exactly_the_trials_they_name(job, trials, filters, keep):
    expected = [t.number for t in trials if keep(t)]
    assert [t.number for t in filter_trials(job, filters).order_by("number")] == expected
    numbers, total = pages(job, sort="-config.lr", filters=filters)
    assert (sorted(numbers), total) == (expected, len(expected))


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({"sort": "log"}, "sort"),
        ({"sort": "--number"}, "sort"),
        ({"sort": "config."}, "sort"),
        ({"sort": "config." + "x" * 101}, "sort"),
        ({"sort": "config.a\0"}, "sort"),
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"cursor": encode_cursor("-number", [1, 1])}, "cursor"),
        ({"cursor": encode_cursor("number", ["1", 1])}, "cursor"),
        ({"cursor": encode_cursor("number", [1])}, "cursor"),
        ({"filters": {"log": "x"}}, "log"),
        ({"filters": {"state": "finished"}}, "state"),
        ({"filters": {"state__gte": "completed"}}, "state__gte"),
        ({"filters": {"number": "x"}}, "number"),
        ({"filters": {"number": str(10**12)}}, "number"),
        ({"filters": {"metric__lte": None}}, "metric__lte"),
        ({"filters": {"config.lr__gte": "big"}}, "config.lr__gte"),
        ({"filters": {"config.lr__lte": True}}, "config.lr__lte"),
        ({"filters": {"config.__gte": "1"}}, "config.__gte"),
    ],
)
def test_a_query_that_makes_no_sense_names_its_parameter(job, query, parameter):
    with pytest.raises(InvalidQuery) as caught:
        trial_page(job, **query)
    assert caught.value.parameter == parameter


def test_names_that_look_like_sql_are_only_names(job):
    Trial.objects.create(job=job, number=0, config={"a' OR 1=1 --": 1, '0"': 2, "0": 3, "a__b": 4})
    assert trial_page(job, sort="config.a' OR 1=1 --").items[0].number == 0
    assert [
        t.number for t in filter_trials(job, {'config.0"': "2", "config.0": "3", "config.a__b": "4"})
    ] == [0]
    assert config_names(job) == sorted(["a' OR 1=1 --", '0"', "0", "a__b"])


def test_a_page_reads_neither_curves_nor_logs_and_takes_two_queries(job, trials):
    with CaptureQueriesContext(
        connection,
    ) as queries:
        [trial_row(trial) for trial in trial_page(job, sort="-metric").items]
    assert len(queries) == 2
    assert not any('"curve"' in q["sql"] or '"log"' in q["sql"] for q in queries)


def test_trials_of_other_jobs_stay_out(job, trials):
    other = Job.objects.create(kind="study", name="b", team=job.team, owner=job.owner, spec={})
    Trial.objects.create(job=other, number=0, config={"x": 1})
    assert trial_page(job).total == len(trials)
    assert config_names(other) == ["x"]
    assert [trial_row(t)["config"] for t in trial_page(other).items] == [{"x": 1}]
