"""Letting people in, changing what they may do, and their first sign-in."""

import re

import pytest
from django.core.cache import cache
from django.test import Client

from cluster.core.roles import Role
from cluster.models import Membership, Team, User
from journal.models import AuditEntry

PASSWORD = "a long enough password"


@pytest.fixture(autouse=True)
def fresh_cache():
    cache.clear()


@pytest.fixture
def ada(db, demo):
    user = demo.person("ada")
    demo.team_with(user, Role.ADMIN)
    return user


@pytest.fixture
def browser(ada):
    client = Client()
    client.force_login(ada)
    return client


def link_in(answer) -> str:
    found = re.search(r"http://testserver(/login/[^<]+)", answer.content.decode())
    assert found is not None
    return found[1]


def let_in(browser, name="grace", role="operator", team="demo"):
    return browser.post("/people", {"name": name, "role": role, "team": team})


def test_somebody_is_let_in_signs_in_once_by_the_link_and_then_by_a_password(browser):
    path = link_in(let_in(browser))
    assert Membership.objects.get(user__username="grace").role == Role.OPERATOR
    grace, thief = Client(), Client()
    assert grace.get(path).status_code == 302
    assert thief.get(path).status_code == 403
    assert "You came by a link" in grace.get("/password").content.decode()
    weak = grace.post("/password", {"new_password1": "password", "new_password2": "password"})
    assert (weak.status_code, "too common" in weak.content.decode()) == (422, True)
    grace.post("/password", {"new_password1": PASSWORD, "new_password2": PASSWORD})
    assert grace.get("/password").status_code == 200  # still signed in
    again = Client().post("/sign-in", {"username": "grace", "password": PASSWORD})
    assert again.status_code == 302
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"user.create", "member.add", "user.link", "user.sign-in", "user.password"} <= actions


@pytest.mark.parametrize(
    ("form", "words"),
    [({"name": "gr ace"}, "may hold letters"), ({"name": ""}, "1 to 150 characters"),
     ({"name": "x" * 151}, "1 to 150 characters"), ({"role": "king"}, "choose one of"),
     ({"name": "ada"}, "is a member of demo already")],
)  # fmt: skip
def test_what_makes_no_sense_is_said_and_lets_nobody_in(browser, form, words):
    answer = let_in(browser, **form)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert User.objects.count() == 1


def test_a_role_is_changed_or_ended_by_an_admin_but_never_ones_own(browser, ada):
    let_in(browser)
    grace = User.objects.get(username="grace")
    form = {"team": "demo", "user": str(grace.pk)}
    browser.post("/people/change", {**form, "role": "admin"})
    assert Membership.objects.get(user=grace).role == Role.ADMIN
    browser.post("/people/change", {**form, "role": "remove"})
    assert not Membership.objects.filter(user=grace).exists()
    browser.post("/people/change", {"team": "demo", "user": str(ada.pk), "role": "viewer"})
    assert Membership.objects.get(user=ada).role == Role.ADMIN


def test_only_admins_and_only_in_their_teams(browser, demo, db):
    otto = demo.person("otto")
    demo.team_with(otto, Role.OPERATOR)
    client = Client()
    client.force_login(otto)
    for path in ("/people", "/people/change", "/people/link"):
        assert client.post(path, {}).status_code == 403
    foreign = Team.objects.create(slug="other", name="Other")
    both = demo.person("both")
    for team in (foreign, Team.objects.get(slug="demo")):
        Membership.objects.create(team=team, user=both, role=Role.VIEWER)
    answer = browser.post("/people/link", {"team": "demo", "user": str(both.pk)}, follow=True)
    assert "only who administers all teams of both" in answer.content.decode()
    root = demo.person("root", is_superuser=True)
    demo.team_with(root, Role.ADMIN)
    refused = browser.post("/people/link", {"team": "demo", "user": str(root.pk)}, follow=True)
    assert "Not done" in refused.content.decode()
    assert browser.post("/people/change", {"team": "other", "user": str(both.pk)}).status_code == 404
