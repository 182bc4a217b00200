"""Jobs that run on the devices of this machine."""

import pytest

from cluster.models import QueueEntry
from cluster.services.devices import FoundDevice, FoundNode, record_discovery
from jobs.core.body import parse_body
from jobs.models import Job
from jobs.services.coordination import coordinate
from jobs.services.grants import gave_back, grant_of, stopped
from jobs.services.lifecycle import move_job
from jobs.services.submission import submit_job
from tuning.services.bubbles import switch_lending


def test_real_jobs_use_real_devices_only_and_a_preempted_study_waits_again(
    rehearsal, people, workload, clock, state, check_books
):
    team, user = people["red"]
    record_discovery([FoundNode("host", "127.0.0.1", 2, 0, (FoundDevice(0, "cpu"), FoundDevice(1, "cpu")))])

    def study(**spec):
        body = parse_body({"kind": "study", "spec": {"workload": "tiny", **spec}})
        return submit_job(body=body, team=team, owner=user, actor="red")

    low = study(min_runtime_s=0)
    coordinate()
    assert {str(device) for device in grant_of(low.pk).devices} == {"host/cpu:0", "host/cpu:1"}
    move_job(Job.objects.get(pk=low.pk), "running")
    clock.go(1)
    high = study(devices=2, **{"class": 5})
    coordinate()
    grant = grant_of(low.pk)
    assert (len(grant.devices), len(grant.leaving)) == (1, 1) or grant.stopping
    gave_back(low.pk, grant.leaving)
    for _ in range(3):
        coordinate()
        if (grant := grant_of(low.pk)) and grant.stopping:
            stopped(low.pk)
    assert (state(low), low.substate) == ("queued", "waiting for devices")
    assert len(grant_of(high.pk).devices) == 2
    check_books()


@pytest.mark.parametrize(
    ("stages", "lend_bubbles", "lends"), [(2, True, True), (2, False, False), (1, True, False)]
)
def test_a_study_begins_in_the_bubbles_of_a_job_that_has_all_devices_and_lends(
    people, workload, state, stages: int, lend_bubbles: bool, lends: bool
):
    team, user = people["red"]
    record_discovery([FoundNode("host", "127.0.0.1", 2, 0, (FoundDevice(0, "cpu"), FoundDevice(1, "cpu")))])

    def submit(kind, **spec):
        body = parse_body({"kind": kind, "spec": spec})
        return submit_job(body=body, team=team, owner=user, actor="red")

    replica = {"stages": [{"layers": 2}] * stages}
    layout = {"replicas": [replica] * (2 // stages)}
    training = submit("training", workload="pydoc-gpt", layout=layout, lend_bubbles=lend_bubbles)
    coordinate()
    assert len(grant_of(training.pk).devices) == 2
    study = submit("study", workload="tiny")
    other = submit("study", workload="tiny", bubbles="no")
    coordinate()
    assert (grant_of(study.pk) is not None) == lends
    assert not lends or grant_of(study.pk).devices == ()
    assert grant_of(other.pk) is None


@pytest.mark.parametrize("lends", [True, False])
def test_a_gang_that_came_before_any_device_shares_the_cores_that_come_later(people, lends):
    team, user = people["red"]
    stages = {"stages": [{"layers": 2}, {"layers": 2}]}
    spec = {"workload": "pydoc-gpt", "layout": {"replicas": [stages, stages]}, "lend_bubbles": True}
    body = parse_body({"kind": "training", "spec": spec})
    job = submit_job(body=body, team=team, owner=user, actor="red")
    if not lends:
        switch_lending(job_id=job.pk, lending=False, actor="otto")
    record_discovery([FoundNode("host", "127.0.0.1", 2, 0, (FoundDevice(0, "cpu"), FoundDevice(1, "cpu")))])
    for _ in range(2):  # the first look finds that four devices can never be had
        coordinate()
    assert {str(device) for device in grant_of(job.pk).devices} == {"host/cpu:0", "host/cpu:1"}
    # What an operator has switched off stays off, whatever is worked out anew.
    assert QueueEntry.objects.get(pk=job.pk).demand["lends"] is lends
