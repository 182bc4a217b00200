from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from cluster.models import Membership
from journal.models import AuditEntry
from web.models import ApiToken, OneTimeSecret
from web.secrets import TOKEN, digest_of
from web.services.one_time import LOGIN, TICKET, issue_secret, redeem_secret

TOKENS = "/api/v1/tokens"


def bearer(text):
    return {"Authorization": f"Bearer {text}"}


def test_a_token_is_shown_once_and_opens_what_it_should(world):
    made = world.ask(
        "researcher", "POST", TOKENS, {"name": "ci", "scopes": ["read", "submit"], "team": "demo"}
    )
    assert made.status_code == 201
    text = made.json()["token"]
    assert TOKEN.fullmatch(text)
    assert "token" not in world.ask("researcher", "GET", made["Location"]).json()
    me = world.send("GET", "/api/v1/me", **bearer(text)).json()
    assert (me["username"], me["token"]["scopes"], me["token"]["team"]) == (
        "researcher", ["read", "submit"], str(world.team.pk),
    )  # fmt: skip
    entry = AuditEntry.objects.get(action="token.create", detail__name="ci")
    assert text not in str(entry.content)


def test_the_database_holds_only_a_hash_of_the_secret(world):
    made = world.token("viewer")
    world.send("GET", "/api/v1/me", **bearer(made.text))
    secret = made.text.rpartition("_")[2]
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        tables = [row[0] for row in cursor.fetchall()]
        for table in tables:
            cursor.execute(f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s', [f"%{secret}%"])
            assert cursor.fetchone()[0] == 0, table
        cursor.execute(
            "SELECT count(*) FROM web_apitoken AS t WHERE t::text LIKE %s", [f"%{digest_of(made.text)}%"]
        )
        assert cursor.fetchone()[0] == 1


def test_a_revoked_token_opens_nothing_from_then_on(world):
    made = world.token("viewer")
    assert world.send("GET", "/api/v1/me", **bearer(made.text)).status_code == 200
    assert world.ask("viewer", "DELETE", f"{TOKENS}/{made.token.pk}").status_code == 204
    assert world.send("GET", "/api/v1/me", **bearer(made.text)).status_code == 401
    assert world.ask("viewer", "DELETE", f"{TOKENS}/{made.token.pk}").status_code == 204
    assert AuditEntry.objects.filter(action="token.revoke").count() == 1


def test_an_expired_token_and_one_of_a_blocked_person_open_nothing(world):
    made = world.token("viewer", expires_at=timezone.now() + timedelta(hours=1))
    assert world.send("GET", "/api/v1/me", **bearer(made.text)).status_code == 200
    ApiToken.objects.filter(pk=made.token.pk).update(expires_at=timezone.now())
    assert world.send("GET", "/api/v1/me", **bearer(made.text)).status_code == 401
    other = world.token("researcher")
    world.people["researcher"].is_active = False
    world.people["researcher"].save()
    assert world.send("GET", "/api/v1/me", **bearer(other.text)).status_code == 401


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "Bearer nonsense", "Bearer fb_000000000000_" + "0" * 64, "Basic YTpi",
     "bearer\x00x", "Token fb_x", "Bearer " + "x" * 10_000, "", "Bearer ä"],
)  # fmt: skip
def test_a_header_that_holds_no_token_is_401_even_beside_a_session(world, header):
    world.client.force_login(world.people["root"])
    answer = world.send("GET", "/api/v1/me", Authorization=header)
    assert (answer.status_code, answer["Content-Type"]) == (401, "application/problem+json")


def test_the_token_decides_and_not_the_session_beside_it(world):
    world.client.force_login(world.people["root"])
    answer = world.send("GET", "/api/v1/me", **bearer(world.token("viewer").text))
    assert answer.json()["username"] == "viewer"


def test_a_token_in_the_address_is_no_token(world):
    text = world.token("viewer").text
    for query in (f"token={text}", f"access_token={text}"):
        assert world.send("GET", f"/api/v1/me?{query}").status_code == 401


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["read"], set()),
        (["submit"], {"submit"}),
        (["operate"], {"operate"}),
        (["admin"], {"audit", "tokens"}),
    ],
)
def test_a_scope_opens_its_own_and_reading(world, job, scopes, allowed):
    text = world.token("admin", scopes=scopes).text
    asked = {
        "submit": ("POST", f"/api/v1/jobs/{job.pk}/cancel", None),
        "operate": ("POST", f"/api/v1/devices/{world.device.pk}/cordon", {}),
        "audit": ("GET", "/api/v1/audit", None),
        "tokens": ("POST", TOKENS, {"name": "x", "scopes": scopes}),
    }
    assert world.send("GET", f"/api/v1/jobs/{job.pk}", **bearer(text)).status_code == 200
    for name, (method, path, body) in asked.items():
        answer = world.send(method, path, body, **bearer(text))
        assert (answer.status_code == 403) is (name not in allowed), name


def test_a_scope_gives_no_more_than_the_persons_role(world, job):
    text = world.token("viewer").text
    assert world.send("POST", f"/api/v1/jobs/{job.pk}/cancel", **bearer(text)).status_code == 403


def test_a_token_bound_to_a_team_sees_that_team_only(world, job):
    Membership.objects.create(team=world.foreign_team, user=world.people["admin"], role="admin")
    foreign = world.submit("stranger", world.foreign_team)
    text = world.token("admin", team=world.team).text
    assert [j["id"] for j in world.send("GET", "/api/v1/jobs", **bearer(text)).json()["items"]] == [
        str(job.pk)
    ]
    assert world.send("GET", f"/api/v1/jobs/{foreign.pk}", **bearer(text)).status_code == 404
    assert [t["slug"] for t in world.send("GET", "/api/v1/teams", **bearer(text)).json()["items"]] == ["demo"]
    entries = world.send("GET", "/api/v1/audit", **bearer(text)).json()["items"]
    assert {entry["team"] for entry in entries} == {str(world.team.pk)}


def test_a_token_bound_to_a_team_dies_with_the_membership(world):
    text = world.token("viewer", team=world.team).text
    world.people["viewer"].memberships.all().delete()
    assert world.send("GET", "/api/v1/me", **bearer(text)).status_code == 401


@pytest.mark.parametrize(
    ("parent", "body"),
    [
        ({"scopes": ["read", "submit"]}, {"scopes": ["read"]}),
        ({"scopes": ["admin"]}, {"scopes": ["submit"]}),
        ({"scopes": ["admin", "read"], "bound": True}, {"scopes": ["read"]}),
        ({"scopes": ["admin", "read"], "expires": True}, {"scopes": ["read"]}),
    ],
)
def test_a_token_makes_none_that_could_do_more(world, parent, body):
    options = {"scopes": parent["scopes"]}
    if parent.get("bound"):
        options["team"] = world.team
    if parent.get("expires"):
        options["expires_at"] = timezone.now() + timedelta(hours=1)
    text = world.token("admin", **options).text
    answer = world.send("POST", TOKENS, {"name": "child", **body}, **bearer(text))
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:forebay:problem:not-allowed")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": "x"}, "/scopes"),
        ({"name": "x", "scopes": []}, "/scopes"),
        ({"name": "x", "scopes": ["root"]}, "/scopes/0"),
        ({"name": "", "scopes": ["read"]}, "/name"),
        ({"name": "a\nb", "scopes": ["read"]}, "/name"),
        ({"name": "x" * 101, "scopes": ["read"]}, "/name"),
        ({"name": "x", "scopes": ["read"], "team": "rivals"}, "/team"),
        ({"name": "x", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"name": "x", "scopes": ["read"], "expires_at": "9999-01-01T00:00:00Z"}, "/expires_at"),
        ({"name": "x", "scopes": ["read"], "expires_at": "soon"}, "/expires_at"),
        ({"name": "x", "scopes": ["read"], "user": "root"}, "/user"),
        ([], ""),
        ("text", ""),
    ],
)
def test_a_wrong_request_for_a_token_names_the_field(world, body, pointer):
    answer = world.ask("admin", "POST", TOKENS, body)
    assert answer.status_code == 400
    assert pointer in [row["pointer"] for row in answer.json()["errors"]]


def test_the_last_use_is_noted_but_not_with_every_request(world, django_assert_num_queries):
    made = world.token("viewer")
    world.send("GET", "/api/v1/me", **bearer(made.text))
    made.token.refresh_from_db()
    assert made.token.last_used_at is not None
    assert made.token.last_used_ip == "127.0.0.1"
    with django_assert_num_queries(3):
        world.send("GET", "/api/v1/me", **bearer(made.text))


def test_a_ticket_is_good_once_and_remembers_its_token(world):
    made = world.token("viewer")
    answer = world.send("POST", "/api/v1/tickets", **bearer(made.text))
    ticket = answer.json()["ticket"]
    assert answer.status_code == 201
    assert not OneTimeSecret.objects.filter(digest__contains=ticket).exists()
    found = redeem_secret(ticket, purpose=TICKET)
    assert (found.user, found.token) == (world.people["viewer"], made.token)
    assert redeem_secret(ticket, purpose=TICKET) is None


def test_a_ticket_signs_nobody_in_and_a_late_one_opens_nothing(world):
    ticket = issue_secret(purpose=TICKET, user=world.people["viewer"])
    assert redeem_secret(ticket, purpose=LOGIN) is None
    OneTimeSecret.objects.update(expires_at=timezone.now())
    assert redeem_secret(ticket, purpose=TICKET) is None
