"""The devices page."""

import pytest
from django.test import Client

from cluster.core.roles import Role
from cluster.core.states import DeviceState
from journal.models import AuditEntry, Event


@pytest.fixture
def device(db, demo):
    return demo.cores(2)[0]


def browser_of(demo, role):
    """Return a browser of a person with this role."""
    user, browser = demo.person(f"a-{role}"), Client()
    demo.team_with(user, role)
    browser.force_login(user)
    return browser


@pytest.mark.parametrize(
    ("role", "status"), [(Role.VIEWER, 403), (Role.RESEARCHER, 403), (Role.OPERATOR, 302), (Role.ADMIN, 302)]
)
def test_only_operators_move_devices_and_only_they_see_the_buttons(device, demo, role, status):
    browser = browser_of(demo, role)
    assert (b"/cordon" in browser.get("/devices").content) == (status == 302)
    assert browser.post(f"/devices/{device.pk}/cordon", {"reason": "fan"}).status_code == status
    device.refresh_from_db()
    assert device.state == (DeviceState.CORDONED if status == 302 else DeviceState.HEALTHY)


def test_a_cordon_is_written_to_the_audit_log_and_told_to_the_fleet(device, demo):
    browser = browser_of(demo, Role.OPERATOR)
    browser.post(f"/devices/{device.pk}/cordon", {"reason": "  two\nlines  "})
    assert AuditEntry.objects.get(action="device.cordoned").detail == {"reason": "two lines"}
    assert Event.objects.filter(stream_id="fleet").last().data["to"] == "cordoned"
    assert b"two lines" in browser.get("/devices").content
    browser.post(f"/devices/{device.pk}/uncordon")
    device.refresh_from_db()
    assert device.state == DeviceState.HEALTHY


def test_taking_a_device_away_needs_a_reason(device, demo):
    answer = browser_of(demo, Role.OPERATOR).post(f"/devices/{device.pk}/drain", {"reason": " "}, follow=True)
    assert b"say why" in answer.content
    device.refresh_from_db()
    assert device.state == DeviceState.HEALTHY


def test_a_move_that_is_not_legal_is_refused_in_words(device, demo):
    device.state = DeviceState.LOST
    device.save()
    answer = browser_of(demo, Role.OPERATOR).post(f"/devices/{device.pk}/drain", {"reason": "x"}, follow=True)
    assert b"a lost device cannot become draining" in answer.content


@pytest.mark.parametrize("path", ["cordon", "explode"])
def test_unknown_devices_and_actions_are_404(db, demo, path):
    browser = browser_of(demo, Role.OPERATOR)
    device_id = "00000000-0000-7000-8000-000000000000" if path == "cordon" else demo.cores(1)[0].pk
    assert browser.post(f"/devices/{device_id}/{path}", {"reason": "x"}).status_code == 404


def test_the_page_filters_by_state_and_counts_all(device, demo):
    device.state = DeviceState.SUSPECT
    device.save()
    context = browser_of(demo, Role.VIEWER).get("/devices?state=suspect").context
    assert [row["device"] for _, rows in context["nodes"] for row in rows] == [device]
    assert {value: count for value, _, count in context["states"]}["healthy"] == 1


def test_an_empty_fleet_explains_itself(db, demo):
    assert b"discovered from Ray" in browser_of(demo, Role.VIEWER).get("/devices").content
