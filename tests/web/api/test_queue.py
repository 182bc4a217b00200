"""The queue over HTTP: quotas, policies, holding, what-if, and a rehearsal cluster."""

import pytest
from django.core.management import CommandError, call_command

from cluster.models import Coordinator, Device, Quota, Team
from jobs.services.coordination import coordinate

NODES = {"nodes": [{"name": "sim", "count": 2, "devices": 4, "kind": "a100"}], "clock_speed": 60}
QUOTA = {"shares": 2, "quotas": [{"kind": "a100", "guaranteed": 4, "borrowable": 0.5}]}


@pytest.fixture
def rehearsal(world):
    """Load a rehearsal cluster over the API and return how to submit to it."""
    assert world.ask("admin", "PUT", "/api/v1/rehearsal", NODES).status_code == 200

    def submit(name="researcher", **spec):
        team = "rivals" if name == "stranger" else "demo"
        body = {"kind": "rehearsal", "name": f"{name}'s", "team": team, "spec": {"duration_s": 600, **spec}}
        answer = world.ask(name, "POST", "/api/v1/jobs", body)
        assert answer.status_code == 202, answer.content
        return answer.json()

    return submit


def test_a_quota_is_changed_by_who_has_seen_it(world):
    path = f"/api/v1/teams/{world.team.pk}/quota"
    before = world.ask("viewer", "GET", path)
    assert (before.json()["quotas"], before["ETag"]) == ([], '"1"')
    assert world.ask("operator", "PUT", path, QUOTA).status_code == 428
    answer = world.ask("operator", "PUT", path, QUOTA, **{"If-Match": '"1"'})
    assert (answer.status_code, answer["ETag"]) == (200, '"2"')
    assert answer.json()["quotas"] == [{"kind": "a100", "guaranteed": 4, "borrowable": 0.5, "lendable": None}]
    assert answer.json()["warnings"] == ["4 devices of kind a100 are guaranteed, the cluster has 0"]
    assert world.ask("operator", "PUT", path, QUOTA, **{"If-Match": '"1"'}).status_code == 412
    assert world.ask("stranger", "PUT", path, QUOTA, **{"If-Match": '"2"'}).status_code == 404
    assert Quota.objects.get().version == 2


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"quotas": [{"kind": "a", "guaranteed": -1}]}, "/quotas/0/guaranteed"),
        ({"quotas": [{"kind": "a", "guaranteed": "NaN"}]}, "/quotas/0/guaranteed"),
        ({"quotas": [{"kind": "a", "guaranteed": 0.0001}]}, "/quotas/0/guaranteed"),
        ({"quotas": [{"kind": "a", "guaranteed": 1, "lendable": 2}]}, "/quotas/0/lendable"),
        ({"quotas": [{"kind": "a"}, {"kind": "a"}]}, "/quotas/1/kind"),
        ({"quotas": {}}, "/quotas"),
        ({"shares": -1}, "/shares"),
        ({"parent": "nobody"}, "/parent"),
        ({"gpus": 3}, "/gpus"),
        ([1], ""),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused_at_its_field(world, body, pointer):
    path = f"/api/v1/teams/{world.team.pk}/quota"
    answer = world.ask("operator", "PUT", path, body, **{"If-Match": "*"})
    assert answer.status_code == 400
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert not Quota.objects.exists()


def test_teams_cannot_be_above_each_other(world):
    child = Team.objects.create(slug="child", name="Child")
    Quota.objects.create(team=child, parent=world.team)
    path = f"/api/v1/teams/{world.team.pk}/quota"
    answer = world.ask("root", "PUT", path, {"parent": "child"}, **{"If-Match": "*"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/parent")


def test_the_queue_says_who_waits_and_hides_whose_job_a_foreign_one_is(world, rehearsal):
    rehearsal("stranger", devices=8)
    coordinate()
    mine, theirs = rehearsal(devices=6), rehearsal("stranger", devices=8)
    coordinate()
    first, second = world.ask("viewer", "GET", "/api/v1/queue").json()["items"]
    assert (first["job"], first["position"], first["reason"]) == (mine["id"], 1, "waiting_for_devices")
    assert first["message"] == "needs 6 devices, 0 devices free"
    assert first["predicted_start"] is not None
    assert (first["is_simulated"], first["devices"], first["kinds"]) == (True, 6, [])
    assert (second["job"], second["name"], second["team"], second["devices"]) == (None, None, None, 8)
    assert second["ahead"] == [{"job": mine["id"], "name": "researcher's", "team": "demo", "devices": 6}]
    assert theirs["id"] not in str(world.ask("viewer", "GET", "/api/v1/queue").content)
    running = world.ask("stranger", "GET", "/api/v1/queue?state=running&cluster=rehearsal").json()["items"]
    assert running[0]["holds"][0] == "sim-0/a100:0"
    assert world.ask("viewer", "GET", "/api/v1/queue?cluster=real").json()["items"] == []
    page = world.ask("viewer", "GET", "/api/v1/queue?limit=1").json()
    assert len(page["items"]) == 1
    assert (
        world.send("GET", page["next"], Authorization=f"Bearer {world.tokens['viewer']}").status_code == 200
    )
    job = world.ask("viewer", "GET", f"/api/v1/jobs/{mine['id']}").json()
    assert (job["queue"]["position"], job["scheduling"]) == (1, {"devices": 6})


def test_holding_stops_the_queue_or_one_job(world, rehearsal):
    answer = world.ask("operator", "POST", "/api/v1/queue/hold", {"reason": "patching"})
    assert (answer.status_code, answer.json()["reason"]) == (200, "patching")
    job = rehearsal(devices=1)
    coordinate()
    (row,) = world.ask("viewer", "GET", "/api/v1/queue").json()["items"]
    assert (row["reason"], row["position"]) == ("queue_held", None)
    world.ask("operator", "POST", "/api/v1/queue/hold", {"job": job["id"]})
    assert world.ask("operator", "POST", "/api/v1/queue/release").status_code == 200
    coordinate()
    (row,) = world.ask("viewer", "GET", "/api/v1/queue").json()["items"]
    assert (row["reason"], row["is_held"]) == ("held", True)
    world.ask("operator", "POST", "/api/v1/queue/release", {"job": job["id"]})
    coordinate()
    assert world.ask("viewer", "GET", f"/api/v1/jobs/{job['id']}").json()["state"] == "running"
    foreign = rehearsal("stranger", devices=8)["id"]
    assert world.ask("operator", "POST", "/api/v1/queue/hold", {"job": foreign}).status_code == 400


def test_the_policy_is_read_changed_and_refused(world):
    path = "/api/v1/queue/policy?cluster=rehearsal"
    before = world.ask("viewer", "GET", path)
    assert (before.json()["policy"], before.json()["rules"]["min_runtime_s"]) == ("fair", 600)
    assert {"name": "las"}.items() <= next(p for p in before.json()["known"] if p["name"] == "las").items()
    body = {"policy": "las", "rules": {"min_runtime_s": 5}}
    assert world.ask("operator", "PUT", path, body, **{"If-Match": before["ETag"]}).status_code == 200
    assert world.ask("operator", "PUT", path, body, **{"If-Match": before["ETag"]}).status_code == 412
    assert Coordinator.objects.get(pk="rehearsal").rules == {"min_runtime_s": 5}
    assert Coordinator.objects.filter(pk="real", policy="las").count() == 0
    for wrong in ({}, {"policy": "best"}, {"policy": "las", "rules": {"placement": "x"}}):
        assert world.ask("operator", "PUT", path, wrong).status_code == 400


def test_a_preview_compares_without_changing_anything(world, rehearsal):
    rehearsal("stranger", devices=8, duration_s=60_000)
    coordinate()
    mine = rehearsal(devices=4)
    coordinate()
    body = {"policies": ["fifo", "sjf"], "quotas": {"demo": QUOTA}}
    answer = world.ask("operator", "POST", "/api/v1/queue/preview?cluster=rehearsal", body).json()
    assert [play["policy"] for play in answer["after"]] == ["fifo", "sjf"]
    assert answer["before"]["started"] == 1
    (moved,) = answer["after"][0]["moved"]
    assert (moved["job"], moved["moves_s"] < 0) == (mine["id"], True)
    assert set(answer["before"]["device_s"]) == {"demo", "others"}
    assert not Quota.objects.exists()
    wrong = {"without_nodes": ["n99"]}
    assert world.ask("operator", "POST", "/api/v1/queue/preview", wrong).status_code == 400


def test_a_rehearsal_cluster_comes_and_goes_and_keeps_off_real_nodes(world, tmp_path):
    path = "/api/v1/rehearsal"
    answer = world.ask("admin", "PUT", path, NODES | {"teams": {"vision": QUOTA}})
    assert answer.json()["devices"] == {"a100": 8}
    assert Team.objects.filter(slug="vision").exists()
    assert {
        d["is_simulated"] for d in world.ask("viewer", "GET", "/api/v1/devices?kind=a100").json()["items"]
    } == {True}
    real = {"nodes": [{"name": "n0", "kind": "a100"}]}
    assert world.ask("admin", "PUT", path, real).status_code == 400
    assert Device.objects.filter(kind="a100").count() == 8
    for wrong in ({}, {"nodes": []}, {"nodes": [{"name": "x"}]}, NODES | {"clock_speed": 0}):
        assert world.ask("admin", "PUT", path, wrong).status_code == 400
    assert world.ask("admin", "DELETE", path).status_code == 204
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{name: r, devices: 2, kind: h100}]\n")
    call_command("load_rehearsal", str(file))
    assert Device.objects.filter(kind="h100", node__is_simulated=True).count() == 2
    file.write_text("nodes: 3")
    with pytest.raises(CommandError, match="/nodes"):
        call_command("load_rehearsal", str(file))
    call_command("load_rehearsal", remove=True)
    assert not Device.objects.filter(node__is_simulated=True).exists()
