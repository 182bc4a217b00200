"""A study that has no device at all, and runs in the bubbles of somebody else's job."""

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.core.queue import Demand
from cluster.core.requests import gang
from cluster.models import Allotment, Device, Team, User
from cluster.services.queue import enter_queue
from jobs.models import Job
from jobs.services.coordination import coordinate
from journal.queries import events_after
from tuning.models import Container, Trial
from workers.bubble_process import BubbleProcess
from workers.discovery import this_machine
from workers.ray_cluster import ray
from workers.squeezer.places import board_path
from workers.squeezer.rules import Rules
from workers.tuner.bubbles import board_of
from workers.tuner.driver import drive_study

OWNER = Path(__file__).parents[1] / "squeezer" / "owner_program.py"

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(sys.platform != "linux", reason="boards are made for Linux"),
]


def in_the_usual_class(label: str):
    """The lowest class would starve beside other tests that keep every core busy, and any other class slows
    the owner, whose guard would stop lending: so no iteration is a control."""
    return (
        ray.remote(BubbleProcess)
        .options(num_cpus=0, max_concurrency=8)
        .remote(board_of(label), Rules(control_every=0), scheduling="normal")
    )


def lent_out(team, owner) -> None:
    """A training job that lends holds every device."""
    demand = Demand(gang(Device.objects.count()), lends=True)
    job = Job.objects.create(kind="training", team=team, owner=owner, spec={"lend_bubbles": True})
    enter_queue(job_id=job.pk, job_kind="training", label="gpt", team=team, owner=owner, demand=demand,
                declared={})  # fmt: skip
    coordinate()
    assert Allotment.objects.filter(entry_id=job.pk).count() == Device.objects.count()


@pytest.mark.parametrize("bubbles", ["only", "allowed"])
def test_a_study_without_a_device_is_trained_in_bubbles(
    submit_study, tmp_path, monkeypatch, bubbles: str
) -> None:
    monkeypatch.setenv("FOREBAY_BUBBLES", str(tmp_path))
    monkeypatch.setattr("workers.tuner.runner.bubble_actor", in_the_usual_class)
    if bubbles == "allowed":
        lent_out(Team.objects.get(), User.objects.get())
    job = submit_study(trials=3, epochs=2, scaling=8, top_k=1, eager=1.0, bubbles=bubbles)
    index = str(this_machine().devices[0].index)
    owner = subprocess.Popen(
        [sys.executable, str(OWNER), str(board_path("own")), "", index], stdout=subprocess.DEVNULL
    )
    try:
        drive_study(job.pk)
    finally:
        owner.kill()
        owner.wait()
    job.refresh_from_db()
    assert (job.state, job.reason) == ("completed", "")
    assert set(Trial.objects.filter(job=job).values_list("state", flat=True)) == {"completed"}
    assert set(Container.objects.filter(job=job).values_list("device_label", flat=True)) == {"bubble:own"}
    assert not Allotment.objects.filter(entry__job_id=job.pk).exists()
    samples = [event.data for event in events_after(job.stream, 0) if event.kind == "bubble.sample"]
    assert any(sample["used_s"] > 0 for sample in samples)
    assert all(sample["board"] == "bubble:own" for sample in samples)
