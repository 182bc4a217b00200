import io
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from cluster.models import Membership, QueueEntry, Team, User
from cluster.services.devices import FoundDevice, FoundNode, record_discovery
from jobs.models import Job
from tuning.models import Workload
from web.models import ApiToken, OneTimeSecret
from web.services.tokens import find_token


def run(name):
    out = io.StringIO()
    call_command(name, stdout=out)
    return out.getvalue().strip()


@pytest.mark.django_db
def test_the_first_link_makes_the_first_admin_and_a_team(client):
    path = run("login_link")
    user = User.objects.get()
    assert (user.username, user.is_superuser, user.has_usable_password()) == ("admin", True, False)
    assert (Team.objects.get().slug, Membership.objects.get().role) == ("demo", "admin")
    assert client.get(path).status_code == 302
    assert client.get("/api/v1/me").json()["username"] == "admin"


@pytest.mark.django_db
def test_a_link_opens_once_and_for_a_quarter_of_an_hour(client):
    path, late = run("login_link"), run("login_link")
    assert path != late
    left = OneTimeSecret.objects.first().expires_at - timezone.now()
    assert timedelta(minutes=14) < left <= timedelta(minutes=15)
    client.get(path)
    client.logout()
    client.get(path)
    OneTimeSecret.objects.update(expires_at=timezone.now())
    client.get(late)
    assert client.get("/api/v1/me").status_code == 401


@pytest.mark.django_db
def test_another_start_makes_no_second_admin_and_no_second_team():
    User.objects.create(username="boss", is_superuser=True)
    Team.objects.create(slug="ours", name="Ours")
    run("login_link")
    run("local_token")
    assert [user.username for user in User.objects.all()] == ["boss"]
    assert [team.slug for team in Team.objects.all()] == ["ours"]


@pytest.mark.django_db
def test_the_local_token_has_every_scope_and_replaces_the_one_before():
    first, second = run("local_token"), run("local_token")
    assert find_token(first) is None
    token = find_token(second)
    assert (token.scopes, token.user.username, token.team) == (
        ["read", "submit", "operate", "admin"],
        "admin",
        None,
    )
    assert ApiToken.objects.filter(revoked_at__isnull=True).count() == 1


@pytest.fixture
def registered(db):
    space = {"lr": {"type": "loguniform", "low": 0.001, "high": 1.0}}
    description = {"space": space, "metric": "accuracy", "mode": "max", "epochs": 4}
    return Workload.objects.create(name="digits-mlp", description=description)


@pytest.mark.parametrize(
    ("kind", "count", "jobs"), [("cpu", 2, 3), ("cpu", 1, 3), ("H200", 2, 3), ("H200", 1, 1)]
)
def test_the_demo_is_what_its_devices_can_run_and_comes_once(registered, kind, count, jobs):
    record_discovery(
        [FoundNode("n", "127.0.0.1", 2, 2**30, tuple(FoundDevice(i, kind, 2**30) for i in range(count)))]
    )
    run("login_link")
    assert (run("load_demo"), Job.objects.count()) == ("submitted", jobs)
    study = Job.objects.order_by("created_at").first()
    assert (study.kind, study.state) == ("study", "queued")
    assert "nothing to do" in run("load_demo")
    assert Job.objects.count() == jobs
    if jobs == 3:
        training = Job.objects.get(kind="training")
        assert training.spec["lend_bubbles"]
        demand = QueueEntry.objects.get(pk=training.pk).demand
        assert (demand["job_class"], demand["min_runtime_s"]) == (-1, 0)  # gives way at once
        assert Job.objects.get(spec__bubbles="only").kind == "study"
