"""A finished overlap job of a small program, and people of several roles around it."""

import pytest
from django.test import Client

from cluster.core.roles import Role
from cluster.services.leases import take_lease
from jobs.core.body import parse_body
from jobs.services.overlaps import claim_overlap, finish_overlap
from jobs.services.submission import submit_job


@pytest.fixture(scope="session")
def overlap_document():
    """What the worker's process answers for a small program with 1 to 4 tiles."""
    from workers.trainer.overlap.programs.catalogue import BUILT_IN
    from workers.trainer.overlap.study import Request, run_study

    small = BUILT_IN["tp-transformer-inference"].sized(2, layers=1)
    request = Request("tp-transformer-inference", tiles=2, policy="round-robin", variants=True)
    return run_study(request, small)


@pytest.fixture
def people(db, demo):
    found = {role.value: demo.person(role.value) for role in Role}
    for name, person in found.items():
        demo.team_with(person, Role(name))
    found["stranger"] = demo.person("stranger")
    demo.team_with(found["stranger"], Role.ADMIN, slug="elsewhere")
    return found


@pytest.fixture
def as_(people):
    def client(name):
        browser = Client()
        browser.force_login(people[name])
        return browser

    return client


@pytest.fixture
def overlap_job(people, overlap_document, settings, tmp_path):
    """A job that has ended with that document."""
    settings.ARTIFACT_DIR = tmp_path
    owner = people["researcher"]
    spec = {"program": "tp-transformer-inference", "tiles": 2, "policy": "round-robin"}
    job = submit_job(
        body=parse_body({"kind": "overlap", "spec": spec}),
        team=owner.teams.get(slug="demo"),
        owner=owner,
        actor="ada",
    )
    held = take_lease(name=f"overlap:{job.pk}", owner="test", seconds=60)
    assert claim_overlap(job_id=job.pk, held=held) is not None
    finish_overlap(job_id=job.pk, held=held, document=overlap_document)
    job.refresh_from_db()
    return job
