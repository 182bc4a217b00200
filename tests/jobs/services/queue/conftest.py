"""The live queue on PostgreSQL, driven by rehearsal jobs and a clock that the test moves."""

from datetime import timedelta

import pytest
from django.utils import timezone

from cluster.core.bodies import read_rehearsal
from cluster.core.states import AllotmentState
from cluster.models import (
    Allotment,
    Coordinator,
    Membership,
    QueueEntry,
    Team,
    User,
)
from cluster.services.rehearsal_cluster import load_rehearsal
from jobs.core.body import parse_body
from jobs.services.submission import submit_job

NODES = [{"name": "n", "count": 2, "devices": 4, "kind": "a100"}]


@pytest.fixture
def nodes():
    """Two nodes of four devices each."""
    return NODES


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still until the test moves it."""

    class Clock:
        at = timezone.now()

        def go(self, seconds):
            self.at += timedelta(seconds=seconds)

    clock = Clock()
    monkeypatch.setattr(timezone, "now", lambda: clock.at)
    return clock


@pytest.fixture
def people(db):
    """Two teams with a person each."""
    found = {}
    for slug in ("red", "blue"):
        team = Team.objects.create(slug=slug, name=slug)
        user = User.objects.create(username=f"{slug}-person")
        Membership.objects.create(team=team, user=user, role="researcher")
        found[slug] = (team, user)
    return found


@pytest.fixture
def rehearsal(people, clock):
    """Submit rehearsal jobs to a cluster of two nodes with four devices each."""
    load_rehearsal(body=read_rehearsal({"nodes": NODES, "rules": {"min_runtime_s": 60}}), actor="root")

    def submit(duration_s, team="red", **spec):
        team_row, user = people[team]
        body = parse_body({"kind": "rehearsal", "spec": {"duration_s": duration_s, **spec}})
        job = submit_job(body=body, team=team_row, owner=user, actor=user.username)
        clock.go(0.001)  # nobody submits two jobs at the same instant
        return job

    return submit


@pytest.fixture
def state():
    """Return the state of a job as it is now."""

    def state(job):
        job.refresh_from_db()
        return job.state

    return state


@pytest.fixture
def held():
    """Return the thousandths that jobs hold."""

    def held(*jobs):
        rows = Allotment.objects.filter(state=AllotmentState.HELD)
        return [sum(rows.filter(entry=job.pk).values_list("milli", flat=True)) for job in jobs]

    return held


@pytest.fixture
def check_books():
    """Check that nothing is given twice, gangs are whole, running jobs and allotments agree."""

    def check_books():
        totals = {}
        for device, milli in Allotment.objects.exclude(state=AllotmentState.KEPT).values_list(
            "device", "milli"
        ):
            totals[device] = totals.get(device, 0) + milli
        assert max(totals.values(), default=0) <= 1000
        for entry in QueueEntry.objects.filter(state="running", demand__elastic=False):
            wanted = sum(t["count"] * t["devices"] * t["milli"] for t in entry.demand["tasks"])
            shared = wanted // 2 if entry.demand["keeps"] else wanted
            assert sum(entry.allotments.values_list("milli", flat=True)) in (wanted, shared)
        running = set(QueueEntry.objects.filter(state="running").values_list("pk", flat=True))
        assert running >= set(Allotment.objects.filter(state="held").values_list("entry", flat=True))
        for row in Coordinator.objects.exclude(devices={}):
            for entry in row.devices.values():
                assert entry["used"] + entry["free"] + entry["drained"] == entry["total"]
        for entry in QueueEntry.objects.filter(state="waiting").exclude(rank=2**62):
            assert entry.reason
            assert entry.message
            assert entry.wait["next_step"]

    return check_books
