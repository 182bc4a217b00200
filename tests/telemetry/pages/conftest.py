"""People of several roles around one team's training job, its incident and the plan that answers it."""

import pytest
from django.test import Client

from cluster.core.roles import Role


@pytest.fixture
def people(db, demo):
    """One person per role in the team demo, a second admin, and a stranger in a team of their own."""
    found = {}
    for role in Role:
        found[role.value] = demo.person(role.value)
        demo.team_with(found[role.value], role)
    found["other-admin"] = demo.person("other-admin")
    demo.team_with(found["other-admin"], Role.ADMIN)
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


@pytest.fixture
def job(people, team, demo):
    """A running training job of the admin; rank 1 is slow since step 40."""
    return demo.training(people["admin"], team, slow_from=40)


@pytest.fixture
def verdict(job, demo):
    return demo.incident(job)


@pytest.fixture
def plan(job, verdict, demo):
    return demo.plan(job, verdict)
