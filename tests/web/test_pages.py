"""Signing in, tokens, the audit log, preferences."""

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client

from cluster.core.roles import Role
from journal.models import AuditEntry
from journal.services import audit
from web.models import ApiToken
from web.services.one_time import LOGIN, issue_secret
from web.services.passwords import MOST_FAILURES

PASSWORD = "a long enough password"


@pytest.fixture(autouse=True)
def fresh_cache():
    cache.clear()


@pytest.fixture
def ada(db, demo):
    user = demo.person("ada", PASSWORD)
    demo.team_with(user, Role.ADMIN)
    return user


@pytest.fixture
def browser(ada):
    client = Client()
    client.force_login(ada)
    return client


def test_a_password_signs_in_and_leads_to_where_one_wanted_to_go(ada):
    form = {"username": "ada", "password": PASSWORD, "next": "/devices?state=lost"}
    answer = Client().post("/sign-in", form)
    assert (answer.status_code, answer["Location"]) == (302, "/devices?state=lost")
    assert AuditEntry.objects.filter(action="user.sign-in", target="password").count() == 1


@pytest.mark.parametrize(
    "onward", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "http:///x"]
)
def test_nobody_is_sent_to_another_site(ada, onward):
    answer = Client().post("/sign-in", {"username": "ada", "password": PASSWORD, "next": onward})
    assert answer["Location"] == "/"


def test_a_wrong_password_tells_no_more_than_that(ada):
    answer = Client().post("/sign-in", {"username": "ada", "password": "wrong"})
    unknown = Client().post("/sign-in", {"username": "nobody", "password": "wrong"})
    assert answer.status_code == unknown.status_code == 401
    assert b"The name or the password is wrong." in answer.content
    assert b"The name or the password is wrong." in unknown.content


def test_who_keeps_guessing_is_kept_out_even_with_the_right_password(ada):
    for _ in range(MOST_FAILURES):
        Client().post("/sign-in", {"username": "ada", "password": "wrong"})
    answer = Client().post("/sign-in", {"username": "ada", "password": PASSWORD})
    assert answer.status_code == 429
    assert b"try again in 5 minutes" in answer.content


def test_a_link_signs_in_once(ada):
    secret = issue_secret(purpose=LOGIN, user=ada)
    first, second = Client(), Client()
    assert first.get(f"/login/{secret}?next=/tokens")["Location"] == "/tokens"
    assert first.get("/tokens").status_code == 200
    assert second.get(f"/login/{secret}").status_code == 403
    assert second.get("/tokens").status_code == 302
    assert first.get(f"/login/{secret}")["Location"] == "/"


def test_looking_at_a_link_does_not_use_it_up(ada):
    secret = issue_secret(purpose=LOGIN, user=ada)
    Client().head(f"/login/{secret}")
    assert Client().get(f"/login/{secret}").status_code == 302


def test_signing_out_needs_a_form(browser):
    assert browser.get("/sign-out").status_code == 405
    browser.post("/sign-out")
    assert browser.get("/tokens").status_code == 302


def test_a_token_is_shown_once_works_and_can_be_revoked(browser, ada):
    answer = browser.post(
        "/tokens", {"name": "ci", "scopes": ["read", "submit"], "life": "7", "team": "demo"}
    )
    text = answer.context["made"].text
    assert text.encode() in answer.content
    assert "no-store" in answer["Cache-Control"]
    assert text.encode() not in browser.get("/tokens").content
    me = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {text}"})
    assert me.status_code == 200
    token = ApiToken.objects.get()
    browser.post(f"/tokens/{token.pk}/revoke")
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {text}"}).status_code == 401


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "x"}, "scopes"),
        ({"name": "x", "scopes": ["everything"]}, "scopes"),
        ({"name": "x", "scopes": ["read"], "team": "elsewhere"}, "team"),
    ],
)
def test_a_token_that_breaks_rules_is_not_made(browser, form, field):
    answer = browser.post("/tokens", form)
    assert answer.status_code == 422
    assert list(answer.context["errors"]) == [field]
    assert ApiToken.objects.count() == 0


def test_nobody_sees_or_revokes_another_ones_token(browser, demo):
    browser.post("/tokens", {"name": "hers", "scopes": ["read"]})
    other = Client()
    other.force_login(demo.person("bob"))
    assert b"hers" not in other.get("/tokens").content
    assert other.post(f"/tokens/{ApiToken.objects.get().pk}/revoke").status_code == 404


@pytest.mark.parametrize("role", [Role.VIEWER, Role.RESEARCHER, Role.OPERATOR])
def test_only_admins_read_the_audit_log(db, demo, role):
    user, client = demo.person("low"), Client()
    demo.team_with(user, role)
    client.force_login(user)
    assert client.get("/audit").status_code == 403
    assert client.get("/audit/verify").status_code == 403
    assert b'href="/audit"' not in client.get("/").content


def test_an_admin_reads_the_entries_of_their_teams_only(browser, ada, demo):
    other = demo.team_with(demo.person("bob"), Role.ADMIN, slug="elsewhere")
    audit(actor="bob", action="job.submit", target="job:1", team_id=other.pk)
    audit(actor="ada", action="job.cancel", target="job:2", team_id=ada.teams.get().pk)
    assert [entry.action for entry in browser.get("/audit").context["entries"]] == ["job.cancel"]
    assert browser.get("/audit?actor=bob").context["total"] == 0
    assert browser.get("/audit?action=cancel").context["total"] == 1


def test_the_chain_is_verified_and_an_altered_entry_named(browser, ada):
    for _ in range(3):
        audit(actor="ada", action="x", target="y", team_id=ada.teams.get().pk)
    assert browser.get("/audit/verify").context["broken"] is None
    # Only the table's owner can get past the trigger that refuses it.
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE journal_auditentry DISABLE TRIGGER USER")
    AuditEntry.objects.filter(number=2).update(actor="mallory")
    answer = browser.get("/audit/verify", headers={"HX-Request": "true"})
    assert answer.context["broken"] == 2
    assert b"Entry 2 does not match" in answer.content


def test_preferences_are_kept_and_nonsense_is_not(browser, ada):
    browser.post("/preferences", {"theme": "dark", "clock": "sundial", "colour": "red"})
    ada.refresh_from_db()
    assert ada.preferences == {"theme": "dark"}
    assert b'data-theme="dark"' in browser.get("/").content


def test_errors_are_pages_with_a_way_out(browser, ada):
    missing = browser.get("/nothing/here")
    assert missing.status_code == 404
    assert b"Nothing is here" in missing.content
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ada)
    refused = strict.post("/preferences", {"theme": "dark"})
    assert refused.status_code == 403
    assert b"This form is too old" in refused.content


def test_every_page_carries_a_policy_without_inline_scripts(browser):
    answer = browser.get("/")
    policy = answer["Content-Security-Policy"]
    scripts = next(part for part in policy.split(";") if "script-src" in part)
    assert "unsafe" not in scripts
    assert "<script>" not in answer.content.decode()
    assert "onclick" not in answer.content.decode()
