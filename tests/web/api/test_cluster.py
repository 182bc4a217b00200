import pytest
from django.db import connection

from cluster.models import Device
from journal.models import AuditEntry, Event


def test_an_operator_cordons_drains_and_uncordons_a_device(world):
    path = f"/api/v1/devices/{world.device.pk}"
    states = []
    for action, body in (("cordon", {"reason": "fan is loud"}), ("drain", {}), ("uncordon", None)):
        answer = world.ask("operator", "POST", f"{path}/{action}", body)
        assert answer.status_code == 200
        states.append((answer.json()["state"], answer.json()["state_reason"], answer["ETag"]))
    assert states == [("cordoned", "fan is loud", '"2"'), ("draining", "", '"3"'), ("healthy", "", '"4"')]
    assert [e.data["to"] for e in Event.objects.filter(stream_id="fleet")] == [
        "cordoned",
        "draining",
        "healthy",
    ]
    assert AuditEntry.objects.filter(action__startswith="device.").count() == 3
    assert world.ask("viewer", "GET", path)["ETag"] == '"4"'


def test_a_lost_device_cannot_be_drained(world):
    Device.objects.update(state="lost")
    answer = world.ask("operator", "POST", f"/api/v1/devices/{world.device.pk}/drain")
    assert (answer.status_code, answer.json()["detail"]) == (409, "a lost device cannot become draining")


@pytest.mark.parametrize(
    "body", [{"why": "x"}, {"reason": "x" * 301}, {"reason": ["x"]}, [1], "x", {"reason": None}]
)
def test_a_wrong_reason_is_refused(world, body):
    assert world.ask("operator", "POST", f"/api/v1/devices/{world.device.pk}/cordon", body).status_code == 400
    world.device.refresh_from_db()
    assert world.device.state == "healthy"


def test_devices_are_filtered_by_state_node_and_kind(world):
    def count(query):
        return len(world.ask("viewer", "GET", f"/api/v1/devices?{query}").json()["items"])

    assert [count(q) for q in ("state=healthy,lost", "node=n0", "kind=cpu")] == [1, 1, 1]
    assert [count(q) for q in ("state=lost", "node=n1", "kind=H100")] == [0, 0, 0]


def test_me_says_who_asks_and_with_which_roles(world):
    me = world.ask("operator", "GET", "/api/v1/me").json()
    assert (me["username"], [(t["slug"], t["role"]) for t in me["teams"]]) == (
        "operator",
        [("demo", "operator")],
    )
    root = world.ask("root", "GET", "/api/v1/me").json()
    assert [(t["slug"], t["role"]) for t in root["teams"]] == [("demo", "admin"), ("rivals", "admin")]
    world.client.force_login(world.people["viewer"])
    assert world.send("GET", "/api/v1/me").json()["token"] is None


def test_admins_read_the_entries_of_their_teams_only(world, job):
    world.submit("stranger", world.foreign_team)
    teams = {row["team"] for row in world.ask("admin", "GET", "/api/v1/audit").json()["items"]}
    assert teams == {str(world.team.pk)}
    everything = world.ask("root", "GET", "/api/v1/audit").json()["items"]
    assert {row["team"] for row in everything} == {str(world.team.pk), str(world.foreign_team.pk), None}
    mine = world.ask("admin", "GET", f"/api/v1/audit?action=job.submit&target=job:{job.pk}").json()["items"]
    assert [row["actor"] for row in mine] == ["researcher"]


def test_an_altered_entry_is_found(world, job):
    assert world.ask("admin", "GET", "/api/v1/audit/verify").json()["intact"] is True
    first = AuditEntry.objects.order_by("number").first()
    with connection.cursor() as cursor:
        # What only the owner of the database can do.
        cursor.execute("ALTER TABLE journal_auditentry DISABLE TRIGGER USER")
        cursor.execute("UPDATE journal_auditentry SET actor = 'mallory' WHERE number = %s", [first.number])
    answer = world.ask("admin", "GET", "/api/v1/audit/verify").json()
    assert (answer["intact"], answer["broken_at"]) == (False, first.number)


def test_failures_of_foreign_jobs_stay_out(world, job):
    assert [r["job"] for r in world.ask("viewer", "GET", "/api/v1/failure-events").json()["items"]] == [
        str(job.pk)
    ]
    assert world.ask("stranger", "GET", "/api/v1/failure-events").json()["items"] == []
    one = world.ask(
        "viewer", "GET", f"/api/v1/failure-events?device={world.device.pk}&kind=trial.failed"
    ).json()
    assert [row["device_label"] for row in one["items"]] == ["n0/cpu:0"]


def test_a_workload_says_what_can_be_tuned(world):
    answer = world.ask("viewer", "GET", "/api/v1/workloads/tiny").json()
    assert (answer["available"], answer["metric"], set(answer["space"])) == (
        True,
        "accuracy",
        {"lr", "batch_size"},
    )
