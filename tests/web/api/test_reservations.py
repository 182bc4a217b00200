"""Reservations over HTTP, and what they do to the queue."""

from datetime import timedelta

import pytest
from django.utils import timezone

from cluster.models import BookedDevices
from jobs.models import Job
from jobs.services.coordination import coordinate
from journal.models import AuditEntry

NODES = {
    "nodes": [{"name": "sim", "count": 2, "devices": 4, "kind": "a100"}],
    "rules": {"min_runtime_s": 600},
}


def booking(hours=1.0, **changes):
    end = timezone.now() + timedelta(hours=hours)
    return {"name": "release", "kind": "a100", "devices": 4, "end": end.isoformat(), **changes}


@pytest.fixture
def book(world):
    assert world.ask("admin", "PUT", "/api/v1/rehearsal", NODES).status_code == 200
    path = f"/api/v1/teams/{world.team.pk}/reservations"

    def book(**changes):
        return world.ask("operator", "POST", f"{path}?cluster=rehearsal", booking(**changes))

    return book


@pytest.fixture
def submit(world):
    def submit(name, **spec):
        team = "rivals" if name == "stranger" else "demo"
        body = {"kind": "rehearsal", "team": team, "spec": {"duration_s": 600, "devices": 4, **spec}}
        return world.ask(name, "POST", "/api/v1/jobs", body)

    return submit


def states(*answers):
    found = dict(Job.objects.values_list("pk", "state"))
    return [next(state for pk, state in found.items() if str(pk) == a.json()["id"]) for a in answers]


def test_reserved_devices_stay_for_the_jobs_that_name_them(world, book, submit):
    assert book(lendable=False).status_code == 201
    first, second = submit("stranger"), submit("stranger")
    coordinate()
    assert states(first, second) == ["running", "queued"]
    waits = Job.objects.get(pk=second.json()["id"])
    assert waits.reason == "4 devices are reserved for release"
    mine = submit("researcher", reservation="release")
    coordinate()
    assert states(mine) == ["running"]
    path = f"/api/v1/teams/{world.team.pk}/reservations/release?cluster=rehearsal"
    assert world.ask("operator", "DELETE", path).status_code == 204
    actions = AuditEntry.objects.order_by("number").values_list("action", flat=True)
    assert [action for action in actions if action.startswith("reservation")] == [
        "reservation.book",
        "reservation.cancel",
    ]


def test_lent_devices_come_back_at_once_without_the_minimum_run_time(book, submit):
    assert book(lendable=True).status_code == 201
    lent = [submit("stranger"), submit("stranger")]
    coordinate()
    assert states(*lent) == ["running", "running"]
    mine = submit("researcher", reservation="release")
    coordinate()
    assert states(mine) == ["running"]
    assert sorted(states(*lent)) == ["queued", "running"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"devices": 9}, "/devices"),
        ({"devices": 0}, "/devices"),
        ({"devices": "NaN"}, "/devices"),
        ({"kind": "h100"}, "/kind"),
        ({"name": ""}, "/name"),
        ({"hours": -1.0}, "/end"),
        ({"end": "tomorrow"}, "/end"),
        ({"start": "2030-01-01T00:00:00"}, "/start"),
        ({"lendable": "yes"}, "/lendable"),
        ({"gpus": 1}, "/gpus"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_refused_at_its_field(book, changes, pointer):
    answer = book(**changes)
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert not BookedDevices.objects.exists()


def test_no_more_is_reserved_at_one_time_than_there_is(book):
    later = (timezone.now() + timedelta(hours=2)).isoformat()
    assert book(devices=6).status_code == 201
    assert book(name="second", devices=4).status_code == 400
    assert book(name="release", devices=1).status_code == 400
    assert book(name="later", devices=8, hours=3, start=later).status_code == 201


def test_only_the_teams_own_jobs_may_name_a_reservation(book, submit):
    assert book().status_code == 201
    refused = submit("stranger", reservation="release")
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["pointer"] == "/spec/reservation"
    assert submit("researcher", reservation="release").status_code == 202
