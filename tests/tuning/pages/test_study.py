"""A study's page and its parts, by role and by state."""

import json
import re
import uuid

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.core.states import JobState
from tuning.models import Study
from tuning.pages.figures import FIGURES as DRAWN

PARTS = ["", "/head", "/trials", "/failures", "/ladder", "/transfer", "/trials/1", "/trials/1/curve"]
FIGURES = list(DRAWN)


@pytest.fixture
def job(people, team, demo):
    return demo.study(people["researcher"], team, trials=60)


@pytest.mark.parametrize(("name", "status"), [("viewer", 200), ("stranger", 404), (None, 302)])
def test_who_may_read(as_, job, name, status):
    browser = as_(name)
    parts = [*PARTS, *(f"/figures/{figure}" for figure in FIGURES)]
    answers = {part: browser.get(f"/studies/{job.pk}{part}").status_code for part in parts}
    assert answers == dict.fromkeys(parts, status)


@pytest.mark.parametrize("action", ["cancel", "resume"])
@pytest.mark.parametrize(
    ("name", "status"), [("viewer", 403), ("stranger", 404), (None, 302), ("researcher", 302)]
)
def test_who_may_act(as_, people, team, demo, action, name, status):
    state = JobState.QUEUED if action == "cancel" else JobState.FAILED
    job = demo.study(people["researcher"], team, trials=4, ended=1, state=state)
    assert as_(name).post(f"/studies/{job.pk}/{action}").status_code == status
    job.refresh_from_db()
    assert (job.state != state) == (name == "researcher")


@pytest.mark.parametrize(
    ("name", "status"), [("viewer", 403), ("stranger", 404), (None, 302), ("researcher", 302)]
)
def test_who_may_ask_for_a_transfer_check(as_, people, team, demo, name, status):
    job = demo.study(people["researcher"], team, trials=4, ended=1, state=JobState.RUNNING)
    assert as_(name).post(f"/studies/{job.pk}/check-transfer").status_code == status
    assert (Study.objects.get(pk=job.pk).transfer_asked_at is not None) == (name == "researcher")


def test_a_study_that_is_over_is_not_checked(as_, job):
    answer = as_("researcher").post(f"/studies/{job.pk}/check-transfer", follow=True)
    assert "Not done: the study is completed" in answer.content.decode()
    assert b"Check now" not in answer.content


def test_a_transfer_report_is_shown_with_its_reason_and_its_charts(as_, job):
    layer = {"layer": "0", "scalings": [1, 8], "change": [0.1, 0.9], "slope": 1.1, "passed": False}
    report = {
        "verdict": "failed",
        "reason": "0 grow with width <b>",
        "coordinate_check": "failed",
        "layers": [layer],
        "rank_correlation": 0.25,
        "rank_scalings": [8, 4],
        "ranking": [{"trial": 3, "narrow": 0.5, "wide": 0.6}, {"trial": 4, "narrow": None, "wide": 0.1}],
        "metric": "accuracy",
    }
    Study.objects.filter(pk=job.pk).update(transfer=report)
    browser = as_("viewer")
    content = browser.get(f"/studies/{job.pk}/transfer").content.decode()
    assert "0 grow with width &lt;b&gt;" in content
    assert "Spearman 0.25 over 2 configurations, widths 1/8 and 1/4" in content
    widths = browser.get(f"/studies/{job.pk}/figures/widths").json()
    assert widths["note"].startswith("0 of 1 layers")
    twins = browser.get(f"/studies/{job.pk}/figures/twins?with=wider").json()
    assert twins["data"][0]["customdata"] == [3]
    assert "Spearman 0.25" in twins["note"]


def test_actions_refuse_reading_methods_and_other_sites(as_, job, people):
    assert as_("researcher").get(f"/studies/{job.pk}/cancel").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(people["researcher"])
    assert strict.post(f"/studies/{job.pk}/cancel").status_code == 403


def test_a_cancel_button_holds_whatever_the_study_has_done_since_the_page_was_drawn(as_, people, team, demo):
    job = demo.study(people["researcher"], team, trials=4, ended=1, state=JobState.RUNNING)
    page = as_("researcher").get(f"/studies/{job.pk}").content.decode()
    (form,) = re.findall(r"<form[^>]*/cancel.*?</form>", page, re.DOTALL)
    assert 'name="version"' not in form


def test_deciding_on_an_old_version_changes_nothing(as_, people, team, demo):
    job = demo.study(people["researcher"], team, trials=4, ended=1, state=JobState.QUEUED)
    answer = as_("researcher").post(f"/studies/{job.pk}/cancel", {"version": "99"}, follow=True)
    assert b"Not done: " in answer.content
    job.refresh_from_db()
    assert job.state == JobState.QUEUED


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("ended", [0, 3])
def test_unfinished_failed_and_empty_studies_render(as_, people, team, demo, state, ended):
    job = demo.study(people["researcher"], team, trials=10, ended=ended, state=state)
    answer = as_("viewer").get(f"/studies/{job.pk}")
    assert answer.status_code == 200
    for name in FIGURES:
        drawn = as_("viewer").get(f"/studies/{job.pk}/figures/{name}").json()
        assert drawn.get("empty") or drawn.get("data") or drawn.get("axes")


def test_a_missing_study_trial_or_figure_is_404(as_, job):
    browser = as_("viewer")
    for path in (
        f"/studies/{uuid.uuid4()}",
        f"/studies/{job.pk}/trials/999",
        f"/studies/{job.pk}/figures/pie",
    ):
        assert browser.get(path).status_code == 404


def test_the_table_takes_order_filter_start_and_columns_from_the_address(as_, job):
    browser = as_("viewer")
    context = browser.get(f"/studies/{job.pk}/trials?sort=-metric&q=lr<=0.1+epochs>=3&show=gamma").context
    metrics = [trial.metric for trial in context["rows"] if trial.metric is not None]
    assert metrics == sorted(metrics, reverse=True)
    assert all(trial.config["lr"] <= 0.1 for trial in context["rows"])
    assert context["shown"] == ["gamma"]
    start = browser.get(f"/studies/{job.pk}/trials?from=%2340").context["rows"][0]
    assert start.number == 40


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "is no term"),
        ("lr>0.1", "write &gt;="),
        ("colour=red", "neither a column nor a parameter"),
        ("metric>=abc", "must be a number"),
        ("name='open", "quotation mark"),
        ("lr>=0.1 lr>=0.2", "twice"),
        ("state=dancing", "is none of"),
    ],
)
def test_a_filter_that_makes_no_sense_is_explained(as_, job, text, words):
    answer = as_("viewer").get(f"/studies/{job.pk}/trials", {"q": text})
    assert answer.status_code == 200
    assert words in answer.content.decode()


def test_pages_of_trials_meet_without_gap_or_double(as_, people, team, demo):
    job = demo.study(people["researcher"], team, trials=230)
    browser, seen, cursor = as_("viewer"), [], ""
    while cursor is not None:
        context = browser.get(f"/studies/{job.pk}/trials", {"sort": "-metric", "cursor": cursor}).context
        seen += [trial.number for trial in context["rows"]]
        cursor = context["next_cursor"]
    assert sorted(seen) == list(range(230))


def test_the_number_of_queries_does_not_grow_with_the_study(as_, people, team, demo):
    counts = []
    for trials in (20, 400):
        job = demo.study(people["researcher"], team, trials=trials)
        browser = as_("viewer")
        with CaptureQueriesContext(connection) as queries:
            browser.get(f"/studies/{job.pk}")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_hostile_text_is_escaped_everywhere(as_, people, team, demo):
    job = demo.study(people["researcher"], team, trials=60, name=demo.HOSTILE)
    trial = job.trials.get(number=1)
    trial.config = {demo.HOSTILE: demo.HOSTILE, "lr": 0.1}
    trial.log = demo.HOSTILE
    trial.reason = demo.HOSTILE
    trial.save()
    browser = as_("researcher")
    for part in [*PARTS[:-1], f"?show={demo.HOSTILE}"]:
        content = browser.get(f"/studies/{job.pk}{part}").content.decode()
        assert "<img" not in content
        # The value of a checkbox is a key and must come back as it is; nobody reads it.
        assert "\u202e" not in re.sub('value="[^"]*"', "", content)
    for name in FIGURES:
        assert "\u202e" not in browser.get(f"/studies/{job.pk}/figures/{name}").content.decode()
        assert "<img" not in json.dumps(
            browser.get(f"/studies/{job.pk}/figures/{name}").json().get("data", "")
        )


def test_numbers_that_json_cannot_hold_never_reach_it(as_, people, team, demo):
    job = demo.study(people["researcher"], team, trials=30)
    job.trials.filter(number__lt=3).update(metric=float("nan"))
    job.trials.filter(number=4).update(metric=float("inf"))
    for name in FIGURES:
        content = as_("viewer").get(f"/studies/{job.pk}/figures/{name}").content.decode()
        json.loads(content, parse_constant=lambda constant: pytest.fail(constant))


def test_the_export_links_carry_the_filter_that_is_on_screen(as_, job):
    browser = as_("viewer")
    link = browser.get(f"/studies/{job.pk}?q=state=completed+lr<=0.05").context["export"]
    exported = browser.get(f"/api/v1/jobs/{job.pk}/trials.csv?{link}")
    assert exported.status_code == 200
    shown = browser.get(f"/studies/{job.pk}/trials?q=state=completed+lr<=0.05").context["matching"]
    assert len(exported.content.decode().strip().splitlines()) - 1 == shown
