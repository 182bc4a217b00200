"""The pages of overlap jobs: who sees what, the form, what-if questions, figures."""

import json
from uuid import uuid4

import pytest

from cluster.services.leases import take_lease
from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.overlaps import claim_overlap, finish_overlap

MS = 1e3


def figure(browser, job, name, **question):
    answer = browser.get(f"/overlaps/{job.pk}/figures/{name}", question)
    assert answer.status_code == 200
    return json.loads(answer.content, parse_constant=pytest.fail)


def length_ms(drawn, name):
    trace = next(trace for trace in drawn["data"] if trace["name"] == name)
    return sum(trace["x"])


def test_a_finished_job_shows_figures_decisions_and_its_check(as_, overlap_job, overlap_document):
    assert overlap_job.state == JobState.COMPLETED
    text = as_("viewer").get(f"/overlaps/{overlap_job.pk}").content.decode()
    for piece in (
        "Streams before",
        "Streams after",
        "Memory against the budget",
        "equal bit for bit",
        "Decisions",
    ):
        assert piece in text
    assert overlap_job.summary["plan_artifact"] in text
    assert overlap_job.summary["verification"]["passed"]
    assert overlap_job.summary["makespan"] == overlap_document["makespan"]


def test_foreign_jobs_are_not_there(as_, overlap_job):
    for address in ("", "/answer", "/figures/after"):
        assert as_("stranger").get(f"/overlaps/{overlap_job.pk}{address}").status_code == 404
    assert str(overlap_job.pk) not in as_("stranger").get("/overlaps").content.decode()
    assert as_("viewer").get(f"/overlaps/{uuid4()}").status_code == 404
    assert as_("viewer").get(f"/overlaps/{overlap_job.pk}/figures/none").status_code == 404


def test_streams_add_up_to_what_the_plan_says(as_, overlap_job, overlap_document):
    after = figure(as_("viewer"), overlap_job, "after", tiles=2)
    assert length_ms(after, "bubble") == pytest.approx(overlap_document["compute_idle"] * MS)
    assert length_ms(after, "exposed communication") == pytest.approx(overlap_document["exposed_comm"] * MS)
    assert length_ms(after, "critical path") == pytest.approx(overlap_document["makespan"] * MS, rel=1e-6)
    assert {trace["name"] for trace in after["data"]} >= {"tile 0", "tile 1"}
    before = figure(as_("viewer"), overlap_job, "before")
    assert length_ms(before, "bubble") > 0


def test_memory_is_drawn_against_the_budget(as_, overlap_job, overlap_document):
    drawn = figure(as_("viewer"), overlap_job, "memory", budget=4096)
    assert [trace["name"] for trace in drawn["data"]] == ["untiled", "plan", "budget"]
    assert max(drawn["data"][1]["y"]) == pytest.approx(overlap_document["peak_bytes"] / (1 << 20))


def test_more_bandwidth_makes_the_step_shorter_and_slowdown_longer(as_, overlap_job):
    browser = as_("viewer")

    def makespan(**question):
        answer = browser.get(f"/overlaps/{overlap_job.pk}/answer", question)
        return answer.context["plan"]["makespan"]

    usual = makespan()
    assert makespan(bandwidth=4) < usual < makespan(bandwidth=0.25)
    assert makespan(slowdown=0.5) > usual
    assert makespan(cluster="h100x8") < usual
    assert makespan(tiles=1) != usual


def test_the_page_shows_the_plan_of_the_job_until_something_else_is_asked(as_, overlap_job, overlap_document):
    browser = as_("viewer")

    def shown(**question):
        return browser.get(f"/overlaps/{overlap_job.pk}/answer", question).context

    untouched = {"tiles": 2, "policy": "", "cluster": "", "bandwidth": "1.0", "slowdown": "0.0", "budget": ""}
    for question in ({}, untouched):
        context = shown(**question)
        assert context["as_planned"]
        assert context["plan"]["order"] == overlap_document["order"]
        assert context["plan"]["decisions"] == overlap_document["decisions"]
        assert context["answer"].timeline.makespan_s == pytest.approx(overlap_document["makespan"])
    asked = shown(**{**untouched, "bandwidth": "2.0"})
    assert (asked["as_planned"], asked["question"].policy) == (False, "round-robin")
    assert shown(policy="serial")["plan"]["makespan"] == overlap_document["serial_makespan"]


def test_a_budget_that_no_plan_keeps_is_said(as_, overlap_job):
    answer = as_("viewer").get(f"/overlaps/{overlap_job.pk}/answer", {"budget": 0.0001})
    assert "no plan of this policy fits" in answer.content.decode()


@pytest.mark.parametrize(
    "question",
    [
        {
            "tiles": "9" * 40,
            "bandwidth": "nan",
            "slowdown": "-1",
            "budget": "x",
            "cluster": "moon",
            "policy": "exact",
        },
        {"tiles": "", "bandwidth": "1e999", "budget": "inf"},
    ],
)
def test_assumptions_that_make_no_sense_are_those_of_the_job(as_, overlap_job, question):
    browser = as_("viewer")
    usual = browser.get(f"/overlaps/{overlap_job.pk}/answer").context["plan"]
    odd = browser.get(f"/overlaps/{overlap_job.pk}/answer", question).context["plan"]
    assert odd["makespan"] == usual["makespan"]


def test_a_job_is_submitted_by_the_form_and_can_be_cancelled(as_, people):
    form = {
        "program": "moe-transformer",
        "tiles": "3",
        "cluster": "h100x8-ndr",
        "policy": "exact",
        "team": "demo",
    }
    answer = as_("researcher").post("/overlaps/new", {**form, "memory_budget": "100", "slowdown": "0.2"})
    job = Job.objects.get()
    assert answer["Location"] == f"/overlaps/{job.pk}"
    assert job.spec == {
        "program": "moe-transformer", "tiles": 3, "cluster": "h100x8-ndr", "policy": "exact",
        "memory_budget": 100.0 * (1 << 20), "slowdown": {"compute": 0.2, "comm": 0.2},
    }  # fmt: skip
    assert "Being worked out" in as_("viewer").get(f"/overlaps/{job.pk}").content.decode()
    assert as_("viewer").post(f"/overlaps/{job.pk}/cancel").status_code == 403
    as_("researcher").post(f"/overlaps/{job.pk}/cancel")
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED


@pytest.mark.parametrize(("tensor_parallel", "ranks"), [(1, "2"), (4, "4")])
def test_the_form_for_a_training_job_asks_about_its_own_model(as_, people, tensor_parallel, ranks):
    owner = people["researcher"]
    model = {"layers": 6, "width": 512, "heads": 8, "context": 128, "microbatch_tokens": 1024}
    stages = [{"layers": 3, "tensor_parallel": tensor_parallel}] * 2
    training = Job.objects.create(
        kind="training", name="gpt", team=owner.teams.get(slug="demo"), owner=owner,
        spec={"parameters": model, "layout": {"replicas": [{"stages": stages}]}},
    )  # fmt: skip
    page = as_("researcher").get("/overlaps/new", {"from": training.pk})
    filled = {name: value for name, value in page.context["sizes"] if value}
    assert filled == {
        "ranks": ranks, "batch": "8", "tokens": "128", "width": "512", "heads": "8", "hidden": "2048",
        "layers": "3",
    }  # fmt: skip
    assert "What would overlap give gpt?" in page.content.decode()
    form = {key: page.context["values"][key] for key in ("program", "tiles", "cluster", "policy", "team")}
    sizes = {f"size_{name}": value for name, value in filled.items()}
    as_("researcher").post("/overlaps/new", form | sizes)
    job = Job.objects.get(kind="overlap")
    assert job.spec["size"] == {name: int(value) for name, value in filled.items()}


def test_a_form_with_faults_comes_back_with_them(as_, people):
    form = {
        "program": "nothing",
        "tiles": "0",
        "cluster": "tpu",
        "policy": "best",
        "team": "demo",
        "slowdown": "x",
        "size_width": "wide",
    }
    answer = as_("researcher").post("/overlaps/new", form)
    assert answer.status_code == 422
    assert set(answer.context["errors"]) == {"program", "tiles", "cluster", "policy", "slowdown", "size"}
    assert as_("viewer").get("/overlaps/new").status_code == 403


def test_a_refusal_is_the_reason_of_a_failed_job(as_, people, overlap_job):
    again = Job.objects.create(
        kind="overlap", name="p", team=overlap_job.team, owner=overlap_job.owner, spec=overlap_job.spec
    )
    held = take_lease(name=f"overlap:{again.pk}", owner="test", seconds=60)
    claim_overlap(job_id=again.pk, held=held)
    finish_overlap(job_id=again.pk, held=held, document={"refused": "node relu: takes a collective"})
    again.refresh_from_db()
    assert (again.state, again.reason) == (JobState.FAILED, "node relu: takes a collective")
    assert "takes a collective" in as_("viewer").get(f"/overlaps/{again.pk}").content.decode()
