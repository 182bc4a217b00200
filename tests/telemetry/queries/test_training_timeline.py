"""What the timeline of a training job and the first frame of its stream say of incidents and layouts."""

import copy
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from cluster.core.roles import Role
from jobs.core.states import JobState
from jobs.models import Job, TrainingRun
from journal.models import Event
from journal.services import Fact, record
from telemetry.core.streams import StreamName
from telemetry.queries import snapshot_of
from telemetry.queries.training_timeline import training_timeline
from telemetry.services.verdicts import clear_verdict


@pytest.fixture
def job(db, demo):
    owner = demo.person("ada")
    return demo.training(owner, demo.team_with(owner, Role.ADMIN), slow_from=40)


def layout_event(job, at_s, epoch, layout, **more):
    record(job.stream, [Fact("training.layout", {"epoch": epoch, "layout": layout, **more})])
    event = Event.objects.filter(stream_id=job.stream).order_by("-seq")[:1].get()
    Event.objects.filter(pk=event.pk).update(at=job.started_at + timedelta(seconds=at_s))


def lanes_of(job):
    return {lane["id"]: lane["intervals"] for lane in training_timeline(job)["lanes"]}


def test_layouts_pauses_incidents_and_the_latest_chunks_have_their_lanes(job, demo):
    run = job.training
    verdict = demo.incident(job)
    without = copy.deepcopy(run.layout)
    without["replicas"][0]["stages"] = [{"devices": ["r0"], "layers": 4}]
    without["idle"] = ["r1"]
    layout_event(job, 3.0, 1, run.layout, step=0, pause_s=2.0)
    layout_event(job, 20.0, 2, without, step=30, pause_s=1.5, phases={"vote": 0.5, "transfer": 1.0})
    lanes = lanes_of(job)
    assert list(lanes) == ["job", "incidents", "r0", "r1", "r2", "r3"]
    assert [(row["kind"], row["start_s"], row["end_s"]) for row in lanes["job"]] == [
        ("start", 0.0, 3.0), ("layout", 3.0, 18.5), ("reconfiguration", 18.5, 20.0), ("layout", 20.0, None),
    ]  # fmt: skip
    assert "vote 0.50 s" in lanes["job"][2]["label"]
    assert lanes["job"][3]["label"] == "layout 2, from step 31: 2 replicas of 1 to 2 stages, 3 ranks"
    (incident,) = lanes["incidents"]
    assert (incident["kind"], incident["end_s"]) == ("device_fail_slow", None)
    assert "2.50 times its healthy time" in incident["label"]
    assert [row["kind"] for row in lanes["r1"][:2]] == ["stage", "idle"]
    # From where chunks are kept on, a rank's lane shows them in place of its stage.
    kinds = {row["kind"] for row in lanes["r0"]}
    assert kinds == {"stage", "forward", "backward", "bubble"}
    for row in lanes["r0"], lanes["r2"]:
        for before, after in zip(row, row[1:], strict=False):
            assert before["end_s"] <= after["start_s"] + 1e-9
    clear_verdict(verdict_id=verdict.pk, reason="mended")
    assert lanes_of(job)["incidents"][0]["end_s"] is not None


def test_an_ended_job_has_no_open_interval_and_one_that_waits_has_no_lane(job):
    layout_event(job, 3.0, 1, job.training.layout, step=0, pause_s=2.0)
    Job.objects.filter(pk=job.pk).update(state=JobState.COMPLETED, ended_at=timezone.now())
    ended = Job.objects.get(pk=job.pk)
    assert all(row["end_s"] is not None for rows in lanes_of(ended).values() for row in rows)
    ended.started_at = None
    assert training_timeline(ended) == {"lanes": []}


def test_where_the_event_log_was_cut_the_present_layout_is_still_known(job):
    assert [row["kind"] for row in lanes_of(job)["job"]] == ["start", "layout"]


def test_a_stream_that_starts_anew_tells_the_whole_state_of_a_run(job, demo):
    verdict = demo.incident(job)
    plan = demo.plan(job, verdict)
    found = snapshot_of(StreamName("job", job.pk))
    json.dumps(found, allow_nan=False)
    run = TrainingRun.objects.get(pk=job.pk)
    assert found["job"]["id"] == str(job.pk)
    assert (found["training"]["step"], found["training"]["layout"]) == (run.step, run.layout)
    assert [row["id"] for row in found["verdicts"]] == [str(verdict.pk)]
    assert [row["id"] for row in found["reconfigurations"]["pending"]] == [str(plan.pk)]
    assert found["injections"] == []
