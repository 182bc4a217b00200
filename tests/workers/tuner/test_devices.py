"""Devices that only speed a target up go back while another job waits, and come again afterwards."""

import pytest

from cluster.models import QueueEntry
from cluster.services.devices import record_discovery
from jobs.services.coordination import coordinate
from jobs.services.grants import gave_back, grant_of
from jobs.services.lifecycle import cancel_job
from workers.discovery import this_machine
from workers.tuner.devices import EVERYTHING, StudyDevices

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def two_studies(submit_study):
    """A study that holds every device, and another that comes later and has to wait."""
    record_discovery([this_machine(max_devices=2)])
    first = submit_study(trials=8, epochs=2, bubbles="no")
    coordinate()
    later = submit_study(trials=8, epochs=2, bubbles="no")
    QueueEntry.objects.filter(pk=later.pk).update(is_held=True)
    return first, later


def seen(job) -> StudyDevices:
    devices = StudyDevices(job)
    devices.look(set(), lambda *_: [])
    return devices


def wanted(job) -> int:
    return QueueEntry.objects.get(pk=job.pk).demand["wanted"]


def test_helping_devices_are_kept_as_long_as_nobody_waits(two_studies):
    first, _ = two_studies
    devices = seen(first)
    before = wanted(first)
    devices.make_room(sorted(devices.labels)[1:])
    assert wanted(first) == before


def test_helping_devices_are_given_up_for_a_job_that_waits_and_asked_for_again_later(two_studies):
    first, later = two_studies
    devices = seen(first)
    held = len(devices.labels)
    assert held > 1
    QueueEntry.objects.filter(pk=later.pk).update(is_held=False)
    helping = sorted(devices.labels)[1:]
    devices.make_room(helping)
    assert wanted(first) == 1
    assert len(grant_of(first.pk).leaving) == held - 1

    devices.look(set(helping), lambda *_: [])
    devices.make_room(helping)  # the target has not paused yet
    assert wanted(first) == 1
    gave_back(first.pk, grant_of(first.pk).leaving)
    cancel_job(job_id=later.pk, actor="ada")
    devices.make_room([])
    assert wanted(first) == EVERYTHING
