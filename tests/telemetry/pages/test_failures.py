"""The page of failures."""

import pytest
from django.test import Client

from cluster.core.roles import Role
from telemetry.models import FailureEvent
from telemetry.pages.failures import PAGE


@pytest.fixture
def job(db, demo):
    user = demo.person("owner")
    return demo.study(user, demo.team_with(user, Role.RESEARCHER), trials=2)


def browser_of(demo, name, slug):
    """Return a browser of a person in a team."""
    user, browser = demo.person(name), Client()
    demo.team_with(user, Role.VIEWER, slug=slug)
    browser.force_login(user)
    return browser


def test_failures_of_other_teams_are_not_shown_but_those_of_devices_are(job, demo):
    FailureEvent.objects.create(kind="trial.failed", job=job, message="secret of demo")
    FailureEvent.objects.create(kind="device.lost", message="cpu:1 vanished")
    ours = browser_of(demo, "viewer", "demo").get("/failures").content
    theirs = browser_of(demo, "stranger", "elsewhere").get("/failures").content
    assert b"secret of demo" in ours
    assert b"secret of demo" not in theirs
    assert b"cpu:1 vanished" in theirs


def test_pages_meet_and_filters_narrow(job, demo):
    FailureEvent.objects.bulk_create(
        FailureEvent(kind="trial.failed" if i % 2 else "actor.lost", job=job, message=f"m{i}")
        for i in range(PAGE + 20)
    )
    browser = browser_of(demo, "viewer", "demo")
    first = browser.get("/failures").context
    second = browser.get("/failures", {"cursor": first["next_cursor"]}).context
    seen = [event.message for event in [*first["events"], *second["events"]]]
    assert sorted(seen) == sorted(f"m{i}" for i in range(PAGE + 20))
    assert first["total"] == PAGE + 20
    assert browser.get("/failures?kind=actor.lost").context["total"] == (PAGE + 20) // 2
    assert browser.get("/failures?q=m7").context["total"] == 11
    assert browser.get("/failures?cursor=nonsense").status_code == 200


def test_messages_are_shown_as_text(job, demo):
    FailureEvent.objects.create(kind="trial.failed", job=job, message=demo.HOSTILE)
    content = browser_of(demo, "viewer", "demo").get("/failures").content.decode()
    assert "&lt;img" in content
    assert "<img" not in content
    assert "\u202e" not in content
