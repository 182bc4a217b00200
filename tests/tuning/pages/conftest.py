"""People of several roles around one team's studies."""

import pytest
from django.test import Client

from cluster.core.roles import Role


@pytest.fixture
def people(db, demo):
    """One person per role in the team demo, and a stranger in a team of their own."""
    found = {}
    for role in Role:
        found[role.value] = demo.person(role.value)
        demo.team_with(found[role.value], role)
    found["stranger"] = demo.person("stranger")
    demo.team_with(found["stranger"], Role.ADMIN, slug="elsewhere")
    return found


@pytest.fixture
def team(people):
    return people["researcher"].teams.get(slug="demo")


@pytest.fixture
def as_(people):
    """Return a browser of a person, by role; None is nobody."""

    def client(name):
        browser = Client()
        if name:
            browser.force_login(people[name])
        return browser

    return client
