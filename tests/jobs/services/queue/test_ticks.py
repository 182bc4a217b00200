"""The coordinator's ticks: all or nothing, written down, decided the same way again."""

import pytest

from cluster.core.states import ClusterName
from cluster.models import (
    Allotment,
    Coordinator,
    DecisionRecord,
    QueueEntry,
)
from cluster.services import coordinator as ticking
from jobs.services.coordination import coordinate


def test_a_tick_that_dies_has_decided_nothing_and_the_next_one_goes_on(rehearsal, monkeypatch, state):
    job = rehearsal(10, devices=2)
    with monkeypatch.context() as broken:
        broken.setattr(ticking, "_record", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            coordinate()
    assert not Allotment.objects.exists()
    assert QueueEntry.objects.get().state == "waiting"
    coordinate()
    assert state(job) == "running"
    epoch = Coordinator.objects.get(pk="rehearsal").epoch
    coordinate()
    assert Coordinator.objects.get(pk="rehearsal").epoch > epoch
    assert Allotment.objects.count() == 2


def test_every_decision_in_the_log_is_decided_the_same_way_again(rehearsal, clock):
    for number in range(6):
        rehearsal(50 + number, devices=1 + number, **{"class": number % 2})
        coordinate()
        clock.go(40)
    coordinate()
    records = list(DecisionRecord.objects.all())
    assert len(records) >= 5
    assert all(ticking.decide_again(record) for record in records)


def test_an_unchanged_queue_is_not_decided_on_again(rehearsal):
    rehearsal(1000, devices=8)
    coordinate()
    before = Coordinator.objects.get(pk="rehearsal").decided_at
    assert ticking.tick(ClusterName.REHEARSAL).decided is False
    assert Coordinator.objects.get(pk="rehearsal").decided_at == before
