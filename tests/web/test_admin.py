"""The Django admin: superusers only, no door of its own, decisions through the same service."""

import pytest

from jobs.models import Reconfiguration
from journal.models import AuditEntry

PLANS = "/admin/jobs/reconfiguration/"


@pytest.mark.parametrize("path", ["/admin/", PLANS, "/admin/login/", "/admin/nonsense"])
def test_there_is_one_sign_in_form_and_it_is_not_here(world, path):
    answer = world.client.get(path)
    assert answer.status_code == 302
    followed = world.client.get(path, follow=True)
    assert followed.redirect_chain[-1][0].startswith("/sign-in?next=")


@pytest.mark.parametrize("name", ["admin", "researcher", "stranger"])
def test_an_admin_of_a_team_is_no_superuser(world, reconfiguration, name):
    world.client.force_login(world.people[name])
    assert world.client.get(PLANS).status_code == 302


def act(world, action, row):
    return world.client.post(PLANS, {"action": action, "_selected_action": str(row.pk)}, follow=True)


def test_a_superuser_approves_through_the_service(world, reconfiguration):
    world.client.force_login(world.people["root"])
    assert world.client.get(f"{PLANS}{reconfiguration.pk}/change/").status_code == 200
    assert "Rebalance of gpt: approved" in act(world, "approve", reconfiguration).content.decode()
    reconfiguration.refresh_from_db()
    assert (reconfiguration.state, reconfiguration.approver) == ("approved", world.people["root"])
    assert AuditEntry.objects.filter(action="reconfiguration.approve", actor="root").count() == 1
    answer = act(world, "reject", reconfiguration).content.decode()
    assert "a reconfiguration that is approved cannot become rejected" in answer


def test_an_own_request_is_refused_and_no_form_changes_a_plan(world, reconfiguration):
    world.client.force_login(world.people["root"])
    Reconfiguration.objects.update(requester=world.people["root"])
    assert "another admin has to" in act(world, "approve", reconfiguration).content.decode()
    assert world.client.post(f"{PLANS}{reconfiguration.pk}/change/", {"state": "executed"}).status_code == 403
    assert world.client.post(f"{PLANS}{reconfiguration.pk}/delete/", {"post": "yes"}).status_code == 403
    reconfiguration.refresh_from_db()
    assert reconfiguration.state == "proposed"
