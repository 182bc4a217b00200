"""Every address times every role. An address that is not in the tables fails."""

from uuid import uuid4

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

# name -> method -> the least role that may; "member" is anybody who is signed in.
API = {
    "api-jobs": {"GET": "member", "POST": "researcher"},
    "api-job": {"GET": "viewer"},
    "api-cancel-job": {"POST": "researcher"},
    "api-resume-job": {"POST": "researcher"},
    "api-job-events": {"GET": "viewer"},
    "api-inject": {"POST": "operator"},
    "api-lending": {"GET": "viewer", "POST": "operator"},
    "api-verdicts": {"GET": "member"},
    "api-verdict": {"GET": "viewer"},
    "api-reconfigurations": {"GET": "member"},
    "api-reconfiguration": {"GET": "viewer"},
    "api-approve": {"POST": "admin"},
    "api-reject": {"POST": "admin"},
    "api-artifact": {"GET": "viewer"},
    "api-trials": {"GET": "viewer"},
    "api-trials-csv": {"GET": "viewer"},
    "api-trials-parquet": {"GET": "viewer"},
    "api-timeline": {"GET": "viewer"},
    "api-workloads": {"GET": "member"},
    "api-workload": {"GET": "member"},
    "api-me": {"GET": "member"},
    "api-teams": {"GET": "member"},
    "api-team": {"GET": "viewer"},
    "api-team-quota": {"GET": "viewer", "PUT": "operator"},
    "api-reservations": {"GET": "viewer", "POST": "operator"},
    "api-reservation": {"DELETE": "operator"},
    "api-queue": {"GET": "member"},
    "api-hold-queue": {"POST": "operator"},
    "api-release-queue": {"POST": "operator"},
    "api-queue-policy": {"GET": "member", "PUT": "operator"},
    "api-queue-preview": {"POST": "operator"},
    "api-rehearsal": {"GET": "member", "PUT": "admin", "DELETE": "admin"},
    "api-devices": {"GET": "member"},
    "api-device": {"GET": "member"},
    "api-cordon-device": {"POST": "operator"},
    "api-drain-device": {"POST": "operator"},
    "api-uncordon-device": {"POST": "operator"},
    "api-audit": {"GET": "admin"},
    "api-verify-audit": {"GET": "admin"},
    "api-failure-events": {"GET": "member"},
    "api-webhooks": {"GET": "admin", "POST": "admin"},
    "api-webhook": {"GET": "admin"},
    "api-test-webhook": {"POST": "admin"},
    "api-deliveries": {"GET": "admin"},
    "api-redeliver": {"POST": "admin"},
    "api-tokens": {"GET": "member", "POST": "member"},
    "api-tickets": {"POST": "member"},
    "metrics": {"GET": "member"},
}
# Tokens are nobody else's, whatever the role.
OWN = {"api-token": ("GET", "DELETE")}
PUBLIC = {"livez", "readyz", "api-schema", "api-docs"}
PUBLIC_PAGES = {"sign-in", "sign-out", "login-link"}
# Objects that belong to a team: a foreign one does not exist.
OF_A_TEAM = {
    "job_id",
    "artifact_id",
    "team_id",
    "reconfiguration_id",
    "verdict_id",
    "webhook_id",
    "delivery_id",
}
RANK = ["viewer", "researcher", "operator", "admin", "root"]


def routes(patterns=None, prefix=""):
    """Yield (name, route, names of its arguments) of every address."""
    for pattern in patterns if patterns is not None else get_resolver().url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield pattern.name, route, set(pattern.pattern.converters)


# The Django admin has addresses of its own, all behind one door: tests/web/test_admin.py.
OURS = [row for row in routes() if not row[1].startswith("admin/")]
ROUTES = [row for row in OURS if row[0] not in {"api-unknown", None}]
UNNAMED = [route for name, route, _ in OURS if name is None]
PAGES = [
    (name, route) for name, route, _ in ROUTES if not route.startswith("api/") and name not in {*API, *PUBLIC}
]


@pytest.fixture
def fill(world, job, artifact, reconfiguration, verdict, delivery):
    """Return an address with ids in it that exist."""
    values = {
        "job_id": job.pk, "artifact_id": artifact.pk, "team_id": world.team.pk, "device_id": world.device.pk,
        "reconfiguration_id": reconfiguration.pk, "verdict_id": verdict.pk,
        "webhook_id": delivery.webhook_id, "delivery_id": delivery.pk, "decision": "approve",
        "token_id": uuid4(),
        "node_id": world.device.node_id, "name": "tiny", "number": 2, "secret": "x" * 30, "action": "cordon",
    }  # fmt: skip

    def fill(route: str) -> str:
        for key, value in values.items():
            for kind in ("uuid", "str", "int", "slug"):
                route = route.replace(f"<{kind}:{key}>", str(value))
        assert "<" not in route, f"say what {route} shall be asked with"
        return f"/{route}"

    return fill


def test_every_address_of_the_api_is_in_the_tables():
    names = {name for name, route, _ in ROUTES if route.startswith("api/") or name in PUBLIC | {"metrics"}}
    assert names == {*API, *OWN, *PUBLIC}


def test_an_address_without_a_name_only_leads_to_one_with_a_name():
    assert all(not route.startswith("api/") for route in UNNAMED)


@pytest.mark.parametrize(
    ("name", "route", "arguments", "method", "least"),
    [(n, r, a, m, least) for n, r, a in ROUTES for m, least in API.get(n, {}).items()],
)
def test_an_address_lets_in_exactly_the_roles_it_should(world, fill, name, route, arguments, method, least):
    path = fill(route)
    answer = world.send(method, path)
    assert (answer.status_code, answer["Content-Type"]) == (401, "application/problem+json")
    assert answer["WWW-Authenticate"].startswith("Bearer")
    of_a_team = bool(arguments & OF_A_TEAM)
    foreign = world.ask("stranger", method, path)
    assert foreign.status_code == 404 if of_a_team else foreign.status_code not in {401, 403, 404, 405}
    lonely = world.ask("loner", method, path).status_code
    if of_a_team or least not in {"member"}:
        assert lonely in ({404} if least in {"viewer", "member"} else {403})
    allowed = RANK.index(least) if least in RANK else 0
    for rank, role in enumerate(RANK):
        status = world.ask(role, method, path).status_code
        if rank < allowed:
            assert status == 403, role
        else:
            assert status in {200, 201, 202, 204, 400, 409, 428}, role


@pytest.mark.parametrize("name", OWN)
def test_tokens_are_only_ones_own_even_for_a_superuser(world, name):
    made = world.token("viewer")
    path = f"/api/v1/tokens/{made.token.pk}"
    assert world.send("GET", path).status_code == 401
    for other in ("admin", "stranger", "root"):
        assert [world.ask(other, method, path).status_code for method in OWN[name]] == [404, 404]
    assert [world.ask("viewer", method, path).status_code for method in OWN[name]] == [200, 204]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/api/schema/", "/api/docs/"])
def test_public_addresses_ask_for_nothing(world, path, valkey_server):
    assert world.send("GET", path).status_code == 200


@pytest.mark.parametrize(("name", "route"), PAGES)
def test_a_page_shows_nothing_to_those_who_are_not_signed_in(world, fill, name, route):
    path = fill(route)
    for method in ("GET", "POST"):
        answer = world.send(method, path)
        if name in PUBLIC_PAGES:
            assert answer.status_code < 500
        else:
            assert answer.status_code in {302, 401, 403, 405}
            assert answer.status_code != 302 or answer["Location"].startswith("/sign-in")


@pytest.mark.parametrize(("name", "route"), [(n, r) for n, r in PAGES if "job_id" in r])
def test_a_foreign_study_has_no_page(world, fill, name, route):
    world.client.force_login(world.people["stranger"])
    for method in ("GET", "POST"):
        assert world.send(method, fill(route)).status_code in {404, 405}


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api", 404), ("/api/", 404), ("/api/v1/", 404), ("/api/v2/jobs", 404), ("/api/v1/jobs/", 404),
     ("/api/v1/jobs/17", 404), ("/api/v1/jobs/465e636a-ced2-4c70-a7c2-a70fdd52a129", 404),
     ("/api/v1/workloads/none", 404),
     ("/api/v1/workloads/a%00b", 404), ("/api/v1/jobs/%2e%2e/me", 404)],
)  # fmt: skip
def test_what_does_not_exist_is_a_problem_with_404(world, path, status):
    answer = world.ask("admin", "GET", path)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert set(answer.json()) >= {"type", "title", "status", "detail", "instance"}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_is_not_there_is_a_problem_with_405(world, method):
    answer = world.ask("admin", method, "/api/v1/jobs")
    assert (answer.status_code, answer["Content-Type"]) == (405, "application/problem+json")
    assert answer["Allow"] == "GET, HEAD, POST"


def test_head_is_a_get_without_its_body(world):
    answer = world.ask("viewer", "HEAD", "/api/v1/jobs")
    assert (answer.status_code, answer.content) == (200, b"")
