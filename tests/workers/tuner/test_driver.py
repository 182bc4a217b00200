"""A study on real Ray actors, from queued to a stored model."""

import pytest

from jobs.models import Artifact, Job
from journal.queries import events_after
from tuning.models import Container, Trial
from workers.tuner.driver import drive_study

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_study_runs_to_a_trained_model(submit_study):
    job = submit_study(trials=4, epochs=2, scaling=8, top_k=1, eager=1.0, fusion="off")
    drive_study(job.pk)
    job.refresh_from_db()
    assert set(Trial.objects.filter(job=job).values_list("state", "reason")) == {("completed", None)}
    assert (job.state, job.reason) == ("completed", "")
    best = job.summary["best"]
    assert best["metric"] > 0.2
    assert Artifact.objects.get(pk=best["model"]).size_bytes > 100_000
    finished = [e.data["trial"] for e in events_after(job.stream, 0) if e.kind == "trial.finished"]
    assert sorted(finished) == [0, 1, 2, 3]
    assert Container.objects.filter(job=job, end_s=None).count() == 0


def test_a_study_without_one_valid_trial_fails_with_its_reasons(submit_study):
    space = {"lr": {"type": "choice", "values": [1e12]}}
    job = submit_study(trials=2, epochs=1, scaling=1, space=space)
    drive_study(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("failed", "no valid trial")
    assert all(
        "non-finite" in (reason or "")
        for reason in Trial.objects.filter(job=job).values_list("reason", flat=True)
    )


def test_a_driver_leaves_a_study_alone_that_another_one_holds(submit_study):
    from cluster.services.leases import take_lease

    job = submit_study(trials=2, epochs=1)
    take_lease(name=f"study:{job.pk}", owner="other", seconds=60)
    drive_study(job.pk)
    assert Job.objects.get(pk=job.pk).state == "queued"
