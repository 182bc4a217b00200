"""Ranks that died come back as new processes while the others train."""

from types import SimpleNamespace

import pytest

from cluster.core.roles import Role
from cluster.services.leases import take_lease
from journal.models import Event
from telemetry.services.readmission import returning_ranks
from workers.training import helm
from workers.training.helm import MOST_RETURNS, Helm

pytestmark = pytest.mark.django_db(transaction=True)


class Fleet:
    """Which ranks are gone, and which of those that were started anew are up."""

    epoch = 0

    def __init__(self, lost):
        self.gone, self.up, self.started = set(lost), set(), []

    def lost(self):
        return set(self.gone)

    def admit(self, rank):
        self.gone.discard(rank)
        self.started.append(rank)

    def ready(self, rank):
        return rank in self.up


@pytest.fixture
def crew(demo, monkeypatch):
    """A run in which rank 1 died and was left out; a helm that has arrived in that layout."""
    owner = demo.person("ada")
    job = demo.training(owner, demo.team_with(owner, Role.ADMIN))
    run = job.training
    alone = {"microbatches": 4, "stages": [{"devices": ["r0"], "layers": 4}]}
    run.layout = {"replicas": [alone, run.layout["replicas"][1]], "idle": [], "dead": ["r1"]}
    run.facts = {"speeds": {"1": 0.0}}
    run.save()
    monkeypatch.setattr(helm, "REST_S", 0.0)
    held = take_lease(name=f"training:{job.pk}", owner="me", seconds=60)
    return SimpleNamespace(fleet=Fleet({1}), run=run, job=job, held=held, broken={1})


def test_a_rank_that_was_left_out_is_started_anew_and_then_offered(crew):
    ours = Helm(crew)
    ours._bring_back()
    assert (crew.fleet.started, crew.broken) == ([1], set())
    assert crew.run.layout["dead"] == ["r1"]  # until it is up no layout may use it
    crew.fleet.up.add(1)
    ours._bring_back()
    crew.run.refresh_from_db()
    assert (crew.run.layout["idle"], crew.run.layout["dead"]) == (["r1"], [])
    (event,) = Event.objects.filter(stream_id=crew.job.stream, kind="training.ranks_back")
    assert event.data["ranks"] == [1]
    crew.run.health = [{"rank": 1, "state": "idle"}]
    assert returning_ranks(crew.run, event.at) == {1}


def test_one_that_dies_again_and_again_stays_out(crew):
    ours = Helm(crew)
    for _ in range(MOST_RETURNS + 3):
        crew.fleet.gone.add(1)
        ours._bring_back()
    assert crew.fleet.started == [1] * MOST_RETURNS
