"""The heat map of the fleet and the failure statistics."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from cluster.core.states import DeviceState
from cluster.models import Device, Node
from jobs.models import TrainingRun
from telemetry.core.heat import BOUNDS, Cell, level_of, tile
from telemetry.models import BurnIn, FailureEvent
from telemetry.queries.failure_counts import PERIODS, over_time
from telemetry.services import clear_verdict


@pytest.mark.parametrize(
    ("slowdown", "level"),
    [(None, "unknown"), (float("nan"), "unknown"), (0.9, "h0"), (1.09, "h0"), (1.1, "h1"), (1.2, "h2"),
     (1.5, "h3"), (1.99, "h3"), (2.0, "h4"), (1e9, "h4")],
)  # fmt: skip
def test_levels_begin_at_their_bounds(slowdown, level):
    assert level_of(slowdown) == level
    assert level_of(BOUNDS[-1]) == "h4"


@pytest.mark.parametrize("count", [1, 2, 8, 100])
def test_every_device_of_a_node_is_drawn_once(count):
    drawn = tile([Cell("h0" if i % 3 else "h4", i % 5 == 0) for i in range(count)])
    assert sum(path.count("M") for _, path in drawn.paths) == count
    assert drawn.columns * drawn.rows >= count
    assert drawn.crosses.count("M") == len(range(0, count, 5))


def test_the_map_knows_what_jobs_incidents_and_burn_ins_measured(job, verdict, as_, demo):
    spare = demo.cores(4)[3]
    BurnIn.objects.create(device=spare, state="failed", factor=1.6)
    Device.objects.filter(pk=spare.pk).update(state=DeviceState.SUSPECT)
    context = as_("viewer").get("/fleet").context
    (node,) = context["nodes"]
    assert [row.level for row in node.devices] == ["h0", "h4", "unknown", "h3"]
    assert [row.label for row in context["worst"]] == ["cpu:3", "cpu:1"]
    assert context["worst"][1].verdict == verdict.pk
    stranger = as_("stranger").get("/fleet").context["worst"]
    assert [row.verdict for row in stranger] == [None, None]
    clear_verdict(verdict_id=verdict.pk, reason="over")
    run = job.training
    run.health = [{"rank": rank, "slowdown": 1.0} for rank in range(4)]
    run.save()
    assert [row.label for row in as_("viewer").get("/fleet").context["worst"]] == ["cpu:3"]


def test_a_device_shows_verdict_evidence_and_burn_in_to_its_team(verdict, job, as_):
    BurnIn.objects.create(device=verdict.device, state="passed", factor=1.01)
    page = as_("viewer").get(f"/fleet/devices/{verdict.device_id}").content.decode()
    for words in ("Slow device", "Peers of the same stage", "Burn-in", "passed", job.name, "r1"):
        assert words.lower() in page.lower(), words
    foreign = as_("stranger").get(f"/fleet/devices/{verdict.device_id}").content.decode()
    assert job.name not in foreign
    assert "No verdict" in foreign
    node = as_("viewer").get(f"/fleet/nodes/{verdict.device.node_id}")
    assert b"open incident" in node.content
    for path in ("nodes", "devices"):
        assert as_("viewer").get(f"/fleet/{path}/00000000-0000-7000-8000-000000000000").status_code == 404


def test_an_empty_fleet_explains_itself(people, as_):
    assert b"discovered from Ray" in as_("viewer").get("/fleet").content


def test_ten_thousand_devices_stay_small_and_paged(people, team, demo, as_, django_assert_max_num_queries):
    now = timezone.now()
    nodes = Node.objects.bulk_create(
        Node(name=f"sim{i:04}", is_simulated=True, seen_at=now, cpus=8) for i in range(1250)
    )
    devices = Device.objects.bulk_create(
        (Device(node=node, index=i, kind="H100", seen_at=now) for node in nodes for i in range(8)),
        batch_size=5000,
    )
    job = demo.training(people["researcher"], team, steps=1)
    health = [{"rank": i, "slowdown": 2.2 if i == 777 else 1.0} for i in range(len(devices))]
    TrainingRun.objects.filter(pk=job.pk).update(devices=[{"id": str(d.pk)} for d in devices], health=health)
    browser = as_("viewer")
    with django_assert_max_num_queries(40):
        answer = browser.get("/fleet?page=13")
    context = answer.context
    assert context["count"] == 10_002
    assert [row.slowdown for row in context["worst"]] == [2.2]
    assert (context["page"], context["pages"], context["rows"][-1].name) == (13, 13, "sim1249")
    assert len(answer.content) < 1_500_000
    found = as_("viewer").get("/fleet?q=sim0097").context
    assert [node.name for node in found["nodes"]] == ["sim0097"]
    assert found["count"] == 10_002


@pytest.fixture
def events(job, verdict):
    FailureEvent.objects.all().delete()
    now = timezone.now()
    made = []
    for i, kind in enumerate(["actor.lost"] * 5 + ["trial.failed"] * 3 + ["verdict.fail_stop"]):
        device = verdict.device if kind == "actor.lost" else None
        made.append(FailureEvent.objects.create(kind=kind, job=job, device=device, message="m"))
        FailureEvent.objects.filter(pk=made[-1].pk).update(at=now - timedelta(hours=i))
    return made


def test_statistics_count_by_kind_by_device_and_over_time(events, verdict, as_):
    context = as_("viewer").get("/failures/statistics?period=day").context
    assert [(row.kind, row.failures, row.devices, row.jobs) for row in context["kinds"]] == [
        ("actor.lost", 5, 1, 1), ("trial.failed", 3, 0, 1), ("verdict.fail_stop", 1, 0, 1),
    ]  # fmt: skip
    assert [(row.device, row.failures) for row in context["devices"]] == [(verdict.device, 5)]
    assert as_("stranger").get("/failures/statistics").context["total"] == 0
    drawn = json.loads(as_("viewer").get("/failures/figure?period=day").content)
    assert sum(sum(trace["y"]) for trace in drawn["data"]) == 9
    assert as_("viewer").get("/failures/statistics?period=odd").context["period"] == "day"


@pytest.mark.parametrize("period", PERIODS)
def test_no_failure_of_a_period_is_counted_twice_or_lost(events, period):
    rows = FailureEvent.objects.all()
    now = timezone.now()
    times, counts = over_time(rows, period, now)
    from_start = rows.filter(at__gte=times[0]).count()
    assert sum(sum(values) for values in counts.values()) == from_start
    assert times == sorted(set(times))
    assert all(len(values) == len(times) for values in counts.values())
