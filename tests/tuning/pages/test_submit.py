"""The submit form, from what is typed to the job."""

import pytest
import yaml

from jobs.models import Job
from tuning.pages.form import body_of, listed, placed, scalar, space_rows, text_of, workload_values
from tuning.pages.submit import code_of


@pytest.fixture
def workload(db, demo):
    return demo.workload()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("true", True),
        ("sgd", "sgd"),
        ("", ""),
        ("[1]", "[1]"),
    ],
)
def test_what_is_typed_becomes_a_number_where_it_is_one(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("32, 64", [32, 64]),
        ("sgd,adam", ["sgd", "adam"]),
        ("", []),
        ("[1, [2, 3]]", [1, [2, 3]]),
        ("[1", ["[1"]),
    ],
)
def test_lists_are_separated_by_commas_or_json(text, values):
    assert listed(text) == values


@pytest.mark.parametrize("value", [3, 0.001, "sgd", True, [32, 64], [[1, 2], [3]], None])
def test_a_value_survives_the_way_through_a_field(value):
    text = text_of(value)
    assert (listed(text) if isinstance(value, list) else scalar(text)) == ("" if value is None else value)


def test_an_untouched_form_asks_for_the_workload_alone(workload):
    assert body_of(workload_values(workload), workload) == {
        "kind": "study",
        "spec": {"workload": "digits-mlp"},
    }


def test_only_changed_rows_of_the_space_are_sent(workload):
    values = workload_values(workload) | {
        "space.0.high": "0.5",
        "space.2.type": "choice",
        "space.2.values": "64",
    }
    assert body_of(values, workload)["spec"]["space"] == {
        "lr": {"type": "loguniform", "low": 0.001, "high": 0.5},
        "batch_size": {"type": "choice", "values": [64]},
    }


def test_faults_find_their_fields(workload):
    found = placed(
        [
            ("/spec/space/lr/low", "a"),
            ("/spec/scheduler/grace", "b"),
            ("/spec/trials", "c"),
            ("/spec/trials", "d"),
            ("/objective/at_least", "e"),
            ("/nowhere", "f"),
        ],
        workload,
    )
    assert found == {"space.0.low": "a", "scheduler.grace": "b", "trials": "c. d", "bound": "e", "": "f"}


def test_the_rows_stand_in_the_order_of_the_declaration(workload, demo):
    workload.refresh_from_db()
    assert [row.name for row in space_rows(workload, {})] == list(demo.SPACE)


def test_the_yaml_and_python_twins_mean_the_same_body(workload):
    body = body_of(
        workload_values(workload) | {"trials": "31", "name": "x: 'y'", "space.0.low": "0.01"}, workload
    )
    code = code_of(body)
    assert yaml.safe_load(code["yaml"]) == body
    shown = code["python"].split("client.submit(")[1].rsplit(")\njob.wait", 1)[0]
    assert eval(shown, {"__builtins__": {}}) == body


@pytest.mark.parametrize(
    ("fields", "anchor"),
    [
        ({"trials": "0"}, "trials"),
        ({"trials": "1.5"}, "trials"),
        ({"epochs": "many"}, "epochs"),
        ({"scaling": "-1"}, "scaling"),
        ({"search": "psychic"}, "search"),
        ({"scheduler.name": "asha", "scheduler.reduction": "1"}, "scheduler-reduction"),
        ({"space.0.low": "0"}, "space-0-low"),
        ({"space.0.high": "NaN"}, "space-0-high"),
        ({"space.2.values": ""}, "space-2-values"),
        ({"objective": "at_least", "bound": "soon"}, "bound"),
        ({"name": "x" * 300}, "name"),
        ({"devices": "0"}, "devices"),
        ({"deadline_s": "-5"}, "deadline_s"),
        ({"fusion": "perhaps"}, "fusion"),
    ],
)
def test_each_wrong_field_is_told_beside_it_and_nothing_is_submitted(as_, workload, fields, anchor):
    browser = as_("researcher")
    checked = browser.post("/studies/new/check", {"workload": "digits-mlp", **fields})
    marked = {name for name, text in checked.context["messages_of"] if text}
    assert marked == {anchor}
    answer = browser.post("/studies/new", {"workload": "digits-mlp", **fields})
    assert answer.status_code == 422
    assert Job.objects.count() == 0


def test_a_second_click_finds_the_study_of_the_first(as_, workload):
    browser = as_("researcher")
    form = {"workload": "digits-mlp", "once": "abc"}
    first, second = browser.post("/studies/new", form), browser.post("/studies/new", form)
    assert first["Location"] == second["Location"]
    assert Job.objects.count() == 1


@pytest.mark.parametrize(("name", "status"), [("viewer", 403), (None, 302), ("researcher", 200)])
def test_who_may_see_the_form(as_, workload, name, status):
    assert as_(name).get("/studies/new").status_code == status
    if name == "viewer":
        assert as_(name).post("/studies/new", {"workload": "digits-mlp"}).status_code == 403


def test_a_team_one_may_not_submit_for_is_refused(as_, workload):
    answer = as_("researcher").post("/studies/new", {"workload": "digits-mlp", "team": "elsewhere"})
    assert answer.status_code == 422
    assert answer.context["errors"]["team"] == "choose one of your teams"


def test_a_rerun_of_a_foreign_study_starts_from_nothing(as_, people, team, demo, workload):
    job = demo.study(people["researcher"], team, trials=33)
    page = as_("stranger").get(f"/studies/new?from={job.pk}")
    assert page.context["origin"] is None
    assert page.context["values"]["trials"] == "20"


def test_without_a_workload_the_page_says_what_to_do(as_):
    assert b"No workload is available yet" in as_("researcher").get("/studies/new").content


def test_the_cost_is_measured_once_there_are_trials(as_, people, team, demo, workload):
    browser = as_("researcher")
    before = browser.get("/studies/new").context["cost"]
    assert before.device_seconds is None
    assert before.epochs == 20 * demo.EPOCHS
    demo.study(people["researcher"], team, trials=50)
    after = browser.get("/studies/new").context["cost"]
    assert after.measured_trials == 50
    assert after.device_seconds == pytest.approx(after.epochs * after.seconds_per_epoch)
