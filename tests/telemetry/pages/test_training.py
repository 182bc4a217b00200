"""The pages of training jobs: by role, by state, and what can be done there."""

import json

import pytest

from jobs.core.states import JobState
from jobs.models import Injection, Job, TrainingRun

STATES = list(JobState)


@pytest.mark.parametrize("state", STATES)
def test_a_job_has_a_page_in_every_state(people, team, demo, as_, state):
    job = demo.training(people["researcher"], team, state=state, steps=30)
    page = as_("viewer").get(f"/training/{job.pk}").content.decode()
    assert job.name in page
    assert "/cancel" not in page
    for part in ("head", "recovery"):
        assert as_("viewer").get(f"/training/{job.pk}/{part}").status_code == 200
    for name in ("iterations", "loss", "pipeline"):
        drawn = json.loads(as_("viewer").get(f"/training/{job.pk}/figures/{name}").content)
        assert drawn.get("data") or drawn.get("empty"), name
    mine = as_("researcher").get(f"/training/{job.pk}").content.decode()
    assert ("/cancel" in mine) == (state in (JobState.QUEUED, JobState.RUNNING))
    assert ("/resume" in mine) == (state in (JobState.FAILED, JobState.CANCELLED))


@pytest.mark.parametrize(
    ("who", "status"), [(None, 302), ("stranger", 404), ("viewer", 200), ("operator", 200), ("admin", 200)]
)
def test_a_job_is_shown_to_its_team_only(job, verdict, plan, as_, who, status):
    addresses = [
        f"/training/{job.pk}", f"/training/{job.pk}/head", f"/training/{job.pk}/figures/loss",
        f"/incidents/{verdict.pk}", f"/incidents/{verdict.pk}/series", f"/reconfigurations/{plan.pk}",
    ]  # fmt: skip
    browser = as_(who)
    assert {browser.get(path).status_code for path in addresses} == {status}


def test_the_list_shows_progress_and_what_needs_attention(people, team, job, verdict, plan, demo, as_):
    demo.training(people["researcher"], team, state=JobState.QUEUED, name="calm <b>one</b>")
    page = as_("viewer").get("/training").content.decode()
    assert "60 of 200" in page
    assert "plan waits" in page
    assert "&lt;b&gt;one" in page
    context = as_("viewer").get("/training?attention=incident").context
    assert [row.pk for row in context["page"].items] == [job.pk]
    assert as_("viewer").get("/training?q=calm").context["page"].total == 1
    assert as_("viewer").get("/training?state=queued&owner=researcher").context["page"].total == 1
    assert as_("stranger").get("/training").context["page"].total == 0
    assert as_("viewer").get("/training?cursor=nonsense&state=odd").status_code == 200


def test_pages_of_the_list_meet(people, team, demo, as_, job):
    rows = [
        Job(kind="training", name=f"j{i}", team=team, owner=people["admin"], spec={"workload": "pydoc-gpt"})
        for i in range(60)
    ]
    Job.objects.bulk_create(rows)
    TrainingRun.objects.bulk_create(TrainingRun(job=row, steps_total=10) for row in rows)
    first = as_("viewer").get("/training").context["page"]
    second = as_("viewer").get("/training", {"cursor": first.next_cursor}).context["page"]
    assert len({row.pk for row in [*first.items, *second.items]}) == first.total == 61
    assert second.next_cursor is None


def test_any_job_leads_to_the_page_of_its_kind(people, team, job, demo, as_):
    study = demo.study(people["researcher"], team, trials=2)
    assert as_("viewer").get(f"/jobs/{job.pk}")["Location"] == f"/training/{job.pk}"
    assert as_("viewer").get(f"/jobs/{study.pk}")["Location"] == f"/studies/{study.pk}"
    assert as_("stranger").get(f"/jobs/{job.pk}").status_code == 404
    assert as_("viewer").get(f"/training/{study.pk}").status_code == 404


def test_the_pipeline_is_measured_and_its_bubbles_have_names(job, as_):
    drawn = json.loads(as_("viewer").get(f"/training/{job.pk}/figures/pipeline").content)
    names = {trace["name"] for trace in drawn["data"]}
    assert {"forward", "backward"} < names
    assert sum(name.startswith("bubble") for name in names) == 3
    assert drawn["note"].startswith("Measured in step 60")
    simulated = json.loads(as_("viewer").get(f"/training/{job.pk}/figures/pipeline?by=simulated").content)
    assert simulated["note"].startswith("Simulated from what the ranks measured")


FAULT = {"mode": "slow", "rank": "1", "factor": "3", "seconds": ""}


@pytest.mark.parametrize(("who", "made"), [("viewer", 0), ("researcher", 0), ("operator", 1), ("admin", 1)])
def test_operators_inject_faults(job, as_, who, made):
    page = as_(who).get(f"/training/{job.pk}").content.decode()
    assert (f"/training/{job.pk}/inject" in page) == bool(made)
    answer = as_(who).post(f"/training/{job.pk}/inject", FAULT)
    assert answer.status_code == (302 if made else 403)
    assert Injection.objects.count() == made


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "burn"}, "choose one of"),
        ({"rank": "9"}, "rank 9 does not live"),
        ({"rank": "-1"}, "whole number"),
        ({"factor": "nan"}, "the factor is a number"),
        ({"factor": "1e9"}, "the factor is a number"),
        ({"seconds": "soon"}, "the duration is a number"),
    ],
)
def test_faults_that_make_no_sense_are_refused_in_words(job, as_, changes, words):
    answer = as_("operator").post(f"/training/{job.pk}/inject", FAULT | changes, follow=True)
    assert words in answer.content.decode()
    assert not Injection.objects.exists()


def test_cancel_and_resume_check_the_version_and_the_role(job, as_):
    path = f"/training/{job.pk}/cancel"
    assert as_("viewer").post(path).status_code == 403
    assert b"has moved on" in as_("researcher").post(path, {"version": "99"}, follow=True).content
    as_("researcher").post(path, {"version": str(job.version)})
    job.refresh_from_db()
    assert job.cancel_asked_at is not None
    Job.objects.filter(pk=job.pk).update(state=JobState.COMPLETED)
    answer = as_("researcher").post(f"/training/{job.pk}/resume", follow=True)
    assert b"a completed job cannot become queued" in answer.content
