"""The pages of the queue, asked as different people."""

import csv
import io

import pytest
from django.test import Client
from django.utils import timezone

from cluster.core.roles import Role
from cluster.models import BookedDevices, Coordinator, DayUsage, QueueEntry, Quota
from cluster.services.accounting import add_recovered
from jobs.core.body import parse_body
from jobs.services.coordination import coordinate
from jobs.services.submission import submit_job
from journal.models import AuditEntry

PATHS = ("/queue", "/capacity", "/quotas", "/what-if", "/accounting")


@pytest.fixture
def operator(db, demo):
    user = demo.person("oz")
    demo.cores(2)
    return user, demo.team_with(user, Role.OPERATOR)


@pytest.fixture
def browser(operator):
    client = Client()
    client.force_login(operator[0])
    return client


@pytest.mark.parametrize("path", PATHS)
def test_an_empty_page_says_what_will_be_there(browser, path):
    answer = browser.get(path)
    assert answer.status_code == 200
    assert browser.get(f"{path}?cluster=rehearsal").status_code == 200


def test_a_study_that_waits_is_told_with_its_reason_and_foreign_ones_only_by_place(browser, operator, demo):
    demo.workload()
    ada = demo.person("ada")
    rivals = demo.team_with(ada, Role.RESEARCHER, "rivals")

    def study(team, owner, name, **spec):
        body = parse_body({"kind": "study", "name": name, "spec": {"workload": "digits-mlp", **spec}})
        return submit_job(body=body, team=team, owner=owner, actor=owner.username)

    study(rivals, ada, "their secret study", devices=1)
    study(rivals, ada, "their other study", devices=1)
    mine = study(operator[1], operator[0], "my study")
    coordinate()
    page = browser.get("/queue").content.decode()
    assert "my study" in page
    assert "needs 1 device, 0 devices free" in page
    assert "secret" not in page
    assert "another team's study" in page
    mine.refresh_from_db()
    assert mine.substate == "waiting for devices"
    assert "their" not in browser.get("/capacity").content.decode()


def test_a_quota_is_refused_with_its_fault_and_saved_once_it_is_right(browser, operator):
    address = f"/quotas/{operator[1].pk}"
    assert b"cpu" in browser.get(address).content
    form = {
        "version": "1",
        "kind.0": "cpu",
        "guaranteed.0": "much",
        "borrowable.0": "",
        "lendable.0": "",
        "shares": "1",
    }
    answer = browser.post(address, {**form, "action": "save"})
    assert answer.status_code == 400
    assert b"is not a number" in answer.content
    right = {**form, "guaranteed.0": "1.5", "borrowable.0": "0", "shares": "2", "action": "save"}
    assert browser.post(address, right).status_code == 302
    quota = Quota.objects.get()
    assert (quota.shares, quota.kinds) == (
        2,
        {"cpu": {"guaranteed": 1500, "borrowable": 0, "lendable": None}},
    )
    browser.post(address, {**right, "guaranteed.0": "2"})  # with the old version
    assert Quota.objects.get().kinds["cpu"]["guaranteed"] == 1500
    assert AuditEntry.objects.filter(action="quota.set").count() == 1


def test_a_preview_changes_nothing(browser, operator):
    form = {"kind.0": "cpu", "guaranteed.0": "1", "action": "preview"}
    answer = browser.post(f"/quotas/{operator[1].pk}", form)
    assert b"What it would do" in answer.content
    assert not Quota.objects.exists()


def test_the_queue_is_held_with_a_reason_and_its_policy_changed(browser):
    browser.post("/queue/hold", {"reason": " "})
    assert not Coordinator.objects.exclude(held_reason="").exists()
    browser.post("/queue/hold", {"reason": "new racks"})
    assert b"The queue is held: new racks" in browser.get("/queue").content
    browser.post("/queue/hold", {"action": "release"})
    browser.post("/queue/policy", {"policy": "las"})
    browser.post("/queue/policy", {"policy": "nonsense"})
    row = Coordinator.objects.get(pk="real")
    assert (row.held_reason, row.policy) == ("", "las")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.RESEARCHER])
def test_who_does_not_operate_reads_and_changes_nothing(operator, demo, role):
    client, user = Client(), demo.person(f"a-{role}")
    demo.team_with(user, role)
    client.force_login(user)
    assert [client.get(path).status_code for path in ("/queue", "/capacity", "/quotas", "/accounting")] == [
        200
    ] * 4
    team = operator[1].pk
    asked = [client.get("/what-if"), client.post("/queue/hold", {"reason": "x"})]
    asked += [
        client.post("/queue/policy", {"policy": "las"}),
        client.post(f"/quotas/{team}", {"action": "save"}),
    ]
    assert [answer.status_code for answer in asked] == [403] * 4


def test_policies_are_compared_on_a_trace_and_a_wrong_one_is_explained(browser):
    rows = "job_id,submit_s,num_gpus,duration_s,user\n" + "".join(
        f"j{n},{n},{4 if n % 3 else 16},{100 + n},u{n % 2}\n" for n in range(30)
    )
    form = {"source": "trace", "policies": ["fifo", "srtf"], "devices": "16"}
    answer = browser.post("/what-if", {**form, "trace": io.BytesIO(rows.encode())})
    page = answer.content.decode()
    assert "30 jobs of the trace" in page
    assert page.count('class="strip"') == 4
    broken = browser.post("/what-if", {**form, "trace": io.BytesIO(b"job_id,submit_s\na,1\n")})
    assert b"num_gpus: the column is missing" in broken.content
    assert b"choose at least one" in browser.post("/what-if", {"source": "queue"}).content
    live_only = browser.post("/what-if", {**form, "policies": ["fifo", "gavel"]}).content
    assert b"gavel weighs what a trace does not tell" in live_only


def test_an_operator_reserves_devices_and_gives_them_up(browser, operator):
    form = {"team": "demo", "name": "release", "kind": "cpu", "devices": "1", "lendable": "on"}
    browser.post("/reservations", {**form, "end": "2999-01-01T00:00"})
    assert BookedDevices.objects.get().milli == 1000
    page = browser.get("/capacity").content.decode()
    assert "others may use them and give way at once" in page
    again = browser.post("/reservations", {**form, "end": "2999-01-01T00:00"}, follow=True)
    assert "there is a reservation" in again.content.decode()
    browser.post("/reservations", {"team": "demo", "name": "release", "action": "cancel"})
    assert not BookedDevices.objects.exists()


def test_a_rerun_asks_of_the_queue_what_the_first_run_asked(operator, demo):
    demo.workload()
    user, team = operator
    past = "2001-01-01T00:00:00+00:00"
    spec = {"workload": "digits-mlp", "class": 3, "limit_s": 60, "deadline": past, "devices": 1}

    def submit(spec, **more):
        body = parse_body({"kind": "study", "spec": spec})
        return submit_job(body=body, team=team, owner=user, actor="oz", **more)

    first = submit(spec)
    again = submit({"workload": "digits-mlp", "limit_s": 90}, rerun_of=first.pk)
    entry = QueueEntry.objects.get(pk=again.pk)
    assert entry.declared == {"class": 3, "limit_s": 90}
    assert (entry.demand["job_class"], entry.demand["limit_s"]) == (3, 90)


def test_accounts_are_a_csv_that_no_spreadsheet_runs(browser, operator, demo):
    user, team = operator
    today = timezone.now().date()
    DayUsage.objects.create(
        day=today, team=team, owner=user, kind="=cmd()", device_s=7200.0, borrowed_device_s=3600.0
    )
    for _ in range(2):
        add_recovered(team_id=team.pk, owner_id=user.pk, kind="=cmd()", device_s=900.0, now=timezone.now())
    stranger = demo.person("eve")
    other = demo.team_with(stranger, Role.ADMIN, "others")
    DayUsage.objects.create(day=today, team=other, owner=stranger, kind="cpu", device_s=1.0)
    rows = list(csv.DictReader(io.StringIO(browser.get("/accounting.csv?days=7").content.decode())))
    hours = ("device_hours", "borrowed_device_hours", "recovered_device_hours")
    assert [(r["team"], r["kind"], *(r[name] for name in hours)) for r in rows] == [
        ("demo", "'=cmd()", "2.000000", "1.000000", "0.500000")
    ]
    assert b"demo" in browser.get("/accounting?days=7").content
