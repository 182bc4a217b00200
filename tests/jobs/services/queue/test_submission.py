"""What is refused at the door of the queue."""

import pytest

from cluster.core.bodies import read_policy, read_quota
from cluster.core.states import ClusterName
from cluster.models import (
    QueueEntry,
)
from cluster.services.quotas import set_policy, set_quota
from jobs.core.errors import InvalidSpec
from jobs.services.coordination import coordinate


@pytest.mark.parametrize(
    ("spec", "pointer", "words"),
    [
        ({"devices": 9}, "/spec/devices", "capacity 8 devices"),
        ({"tasks": 1, "devices_per_task": 5}, "/spec/devices", "shape that no node"),
        ({"kind": "h100"}, "/spec/kind", "has no h100"),
        ({"pin": "elsewhere"}, "/spec/pin", "no node elsewhere"),
        ({"devices": float("nan")}, "/spec/devices", "whole number"),
        ({"devices": -1}, "/spec/devices", "whole number"),
        ({"devices": 0.5}, "/spec/devices", "milli"),
        ({"devices": 2**63}, "/spec/devices", "whole number"),
        ({"devices": float("inf")}, "/spec/devices", "whole number"),
        ({"milli": 1001}, "/spec/milli", "1 to 1000"),
        ({"milli": 500, "devices": 2}, "/spec/milli", "part of one device"),
        ({"milli": 500, "memory_bytes": 5}, "/spec/memory_bytes", "either"),
        ({"class": 101}, "/spec/class", "-100 to 100"),
        ({"deadline": "tomorrow"}, "/spec/deadline", "time with its zone"),
        ({"limit_s": 0}, "/spec/limit_s", "above 0"),
        ({"duration_s": "long"}, "/spec/duration_s", "number of seconds"),
        ({"lenght": 1}, "/spec/lenght", "no known field"),
        ({"speeds": {"a100": 0}}, "/spec/speeds", "number above 0"),
        ({"speeds": []}, "/spec/speeds", "kind of device"),
        ({"speedup": [1, float("nan")]}, "/spec/speedup", "numbers above 0"),
        ({"speedup": []}, "/spec/speedup", "list of numbers"),
        ({"keeps": 1.5}, "/spec/keeps", "above 0 to 1"),
        ({"topology": "rack"}, "/spec/topology", "level"),
        ({"topology": {"level": "rack", "mode": "maybe"}}, "/spec/topology", "required or preferred"),
        ({"topology": {"level": "rack"}}, "/spec/devices", "shape"),
        ({"reservation": "none"}, "/spec/reservation", "no reservation"),
    ],
)
def test_what_makes_no_sense_or_can_never_run_is_refused_at_submission(rehearsal, spec, pointer, words):
    with pytest.raises(InvalidSpec) as caught:
        rehearsal(**{"duration_s": 1, **spec})
    assert [(p, words in rule) for p, rule in caught.value.faults] == [(pointer, True)]
    assert not QueueEntry.objects.exists()


def test_a_team_that_may_never_hold_so_much_is_refused(rehearsal, people):
    quota = {"quotas": [{"kind": "a100", "guaranteed": 2, "borrowable": 1}]}
    set_quota(team_id=people["red"][0].pk, body=read_quota(quota), actor="root")
    with pytest.raises(InvalidSpec, match="red may never hold more than 3 devices"):
        rehearsal(10, devices=4)
    assert rehearsal(10, devices=3)


def test_a_job_over_its_limit_is_ended_and_a_promise_that_cannot_be_kept_refused(rehearsal, clock, state):
    long = rehearsal(100, devices=8, limit_s=20)
    coordinate()
    clock.go(25)
    coordinate()
    assert (state(long), long.reason) == ("failed", "ran into its limit of 20 s")
    set_policy(name=ClusterName.REHEARSAL, body=read_policy({"policy": "deadline"}), actor="root")
    rehearsal(100, devices=8, deadline=150, limit_s=100)
    coordinate()
    with pytest.raises(InvalidSpec, match="the earliest that can be promised now"):
        rehearsal(100, devices=8, deadline=150, limit_s=100)
    assert rehearsal(100, devices=8, deadline=250, limit_s=100)
