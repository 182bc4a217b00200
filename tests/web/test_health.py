import pytest
from django.db.utils import OperationalError

from web import health


def test_a_healthy_site_says_so(world, valkey_server):
    answer = world.send("GET", "/readyz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    assert answer.json()["checks"] == {
        "database": "ok", "migrations": "ok", "broker": "ok", "workers": "idle or not running",
    }  # fmt: skip
    assert world.send("GET", "/livez").json() == {"status": "alive"}


def test_without_a_broker_the_site_is_not_ready_and_names_it(world, broker_at):
    broker_at("redis://127.0.0.1:1/0")
    answer = world.send("GET", "/readyz")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert answer.json()["checks"]["broker"] == "failed: OperationalError"
    assert world.send("GET", "/livez").status_code == 200


def test_missing_migrations_are_named(world, valkey_server, monkeypatch):
    monkeypatch.setattr(health, "_migrated", False)
    from django.db.migrations.recorder import MigrationRecorder

    MigrationRecorder.Migration.objects.filter(app="web").delete()
    answer = world.send("GET", "/readyz")
    assert (answer.status_code, answer.json()["checks"]["migrations"]) == (
        503,
        "failed: migrations are missing",
    )


def test_a_database_that_is_away_is_503_and_asks_to_come_again(world, monkeypatch):
    world.token("viewer")

    def away(*args, **kwargs):
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("jobs.api.jobs.jobs_of", away)
    answer = world.ask("viewer", "GET", "/api/v1/jobs")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert answer.json()["type"] == "urn:forebay:problem:unavailable"
    assert "closed the connection" not in answer.content.decode()


def test_what_nobody_expected_is_a_500_that_tells_nothing_of_the_inside(world, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise KeyError("the secret of the house")

    monkeypatch.setattr("jobs.api.jobs.jobs_of", broken)
    answer = world.ask("viewer", "GET", "/api/v1/jobs")
    assert (answer.status_code, answer["Content-Type"]) == (500, "application/problem+json")
    assert "secret" not in answer.content.decode()
    assert "the secret of the house" in caplog.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_are_only_read(world, path, method):
    assert world.send(method, path).status_code == 405


def test_metrics_count_jobs_devices_and_requests_by_route(world, job):
    world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}")
    text = world.ask("viewer", "GET", "/metrics", Accept="application/openmetrics-text").content.decode()
    assert 'forebay_jobs{kind="study",state="queued"} 1.0' in text
    assert 'forebay_devices{simulated="false",state="healthy"} 1.0' in text
    assert 'route="api/v1/jobs/<uuid:job_id>",status="200"' in text
    assert str(job.pk) not in text
    assert world.send("GET", "/metrics").status_code == 401
