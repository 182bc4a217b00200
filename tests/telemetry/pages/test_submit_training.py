"""The form of a training job: checked by what takes it, and never silently changed."""

import pytest
import yaml
from django.core.cache import cache

from jobs.core.body import parse_body
from jobs.models import Job
from jobs.services.submission import check_spec
from telemetry.pages.training_form import LETS, body_of, untouched, values_of


@pytest.fixture(autouse=True)
def devices(db, demo):
    cache.clear()
    return demo.cores(2)


def test_an_untouched_form_is_valid_and_says_only_what_it_must(people, as_):
    assert body_of(untouched()) == {"kind": "training", "spec": {"workload": "pydoc-gpt"}}
    context = as_("researcher").get("/training/new").context
    assert context["fault_count"] == 0
    assert yaml.safe_load(context["code"]["yaml"]) == {"kind": "training", "team": "demo",
                                                       "spec": {"workload": "pydoc-gpt"}}  # fmt: skip


def test_what_the_page_offers_as_yaml_is_what_it_submits(people, as_):
    typed = untouched() | {"name": "gpt", "shape.stages": "2", "shape.replicas": "2", "steps": "50",
                           "parameters.layers": "5", "policy.repartition": LETS,
                           "lend_bubbles": "no"}  # fmt: skip
    answer = as_("researcher").post("/training/new", typed)
    job = Job.objects.get()
    assert answer["Location"] == f"/training/{job.pk}"
    assert [[s["layers"] for s in r["stages"]] for r in job.spec["layout"]["replicas"]] == [[3, 2], [3, 2]]
    assert (job.spec["steps"], job.spec["lend_bubbles"]) == (50, False)
    assert job.spec["recovery"]["auto"] == ["rebalance", "repartition"]
    review = as_("researcher").post("/training/new/check", typed).context
    body = yaml.safe_load(review["code"]["yaml"])
    assert "&id" not in review["code"]["yaml"]
    assert check_spec(parse_body(body)) == job.spec


def test_a_form_from_an_earlier_job_means_the_same_job(people, team, demo, as_):
    job = demo.training(people["researcher"], team)
    values = values_of(job.spec)
    again = check_spec(parse_body(body_of(values)))
    assert again["layout"] == job.spec["layout"]
    assert again["recovery"] == job.spec["recovery"]
    page = as_("researcher").get(f"/training/new?from={job.pk}")
    assert page.context["origin"] == job
    typed = values | {"rerun_of": str(job.pk), "once": "x"}
    answer = as_("researcher").post("/training/new", typed)
    assert Job.objects.get(rerun_of=job).spec["layout"] == job.spec["layout"]
    assert (
        as_("researcher").post("/training/new", values | {"rerun_of": str(job.pk), "once": "x"}).url
        == answer.url
    )


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"steps": "0"}, "steps", "of at least 1"),
        ({"steps": "many"}, "steps", "must be a whole number"),
        ({"lr": "nan"}, "lr", "must be a number"),
        ({"parameters.heads": "5"}, "parameters.heads", "5 does not divide the width of 64"),
        ({"shape.tensor_parallel": "3"}, "layout", "3 does not divide the 4 heads"),
        ({"shape.stages": "9", "parameters.layers": "4"}, "layout", "the model has only 4 layers"),
        ({"shape.stages": "-1"}, "layout", "must be a list of at least one"),
        ({"layout": "{replicas: [{stages: [{layers: 28}]}]}", "parameters.layers": "30"}, "layout",
         "its stages own 28 layers, the model has 30"),
        ({"layout": "{nonsense"}, "layout", "must be a list of at least one"),
        ({"microbatches": "1", "shape.replicas": "2"}, "microbatches", "1 are too few"),
        ({"schedule": "interleaved", "layout": "{replicas: [{stages: [{layers: 1}, {layers: 3}]}]}"},
         "layout",
         "interleaved cuts every stage in two"),
        ({"recovery.expire_s": "0"}, "recovery.expire_s", "of at least 1"),
        ({"name": "x" * 300}, "name", "200"),
    ],
)  # fmt: skip
def test_a_fault_stands_beside_its_field_and_nothing_is_submitted(people, as_, changes, field, words):
    typed = untouched() | changes
    live = as_("researcher").post("/training/new/check", typed)
    assert words in live.context["errors"][field]
    answer = as_("researcher").post("/training/new", typed)
    assert answer.status_code == 422
    assert words in answer.context["errors"][field]
    assert not Job.objects.exists()


def test_only_researchers_get_the_form(people, as_):
    assert as_("viewer").get("/training/new").status_code == 403
    assert as_("viewer").post("/training/new", untouched()).status_code == 403
    assert as_(None).get("/training/new").status_code == 302
