"""Webhooks over the API."""

import pytest

from telemetry.models import Webhook, WebhookDelivery

PATH = "/api/v1/webhooks"
URL = "https://alerts.example.org/forebay"


def test_a_webhook_is_made_listed_tried_and_deleted(world):
    answer = world.ask("admin", "POST", PATH, {"url": URL})
    assert answer.status_code == 201
    made = answer.json()
    assert made["secret"].startswith("whsec_")
    assert made["kinds"] == [
        "verdict.opened",
        "verdict.cleared",
        "reconfiguration.proposed",
        "reconfiguration.failed",
    ]
    one = answer["Location"].removeprefix("http://testserver")
    assert world.ask("admin", "GET", one).json() == {k: v for k, v in made.items() if k != "secret"}
    assert [row["id"] for row in world.ask("admin", "GET", PATH).json()["items"]] == [made["id"]]
    assert world.ask("stranger", "GET", PATH).json()["items"] == []
    tried = world.ask("admin", "POST", f"{one}/test").json()
    assert (tried["kind"], tried["state"], tried["body"]["data"]["asked_by"].split()[0]) == (
        "webhook.test", "waiting", "admin",
    )  # fmt: skip
    rows = world.ask("admin", "GET", f"{one}/deliveries?state=waiting").json()["items"]
    assert [row["id"] for row in rows] == [tried["id"]]
    assert world.ask("admin", "GET", f"{one}/deliveries?state=delivered").json()["items"] == []
    assert world.ask("operator", "DELETE", one).status_code == 403
    assert world.ask("stranger", "DELETE", one).status_code == 404
    assert world.ask("admin", "DELETE", one).status_code == 204
    assert not Webhook.objects.exists()
    assert not WebhookDelivery.objects.exists()


def test_the_same_key_makes_one_webhook(world):
    answers = [
        world.ask("admin", "POST", PATH, {"url": URL}, **{"Idempotency-Key": "k" * 20}).json()
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert Webhook.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/url"),
        ({"url": "http://169.254.169.254/latest"}, "/url"),
        ({"url": "https://0x7f000001/"}, "/url"),
        ({"url": "file:///etc/passwd"}, "/url"),
        ({"url": URL, "kinds": ["everything"]}, "/kinds/0"),
        ({"url": URL, "kinds": []}, "/kinds"),
        ({"url": URL, "team": "rivals"}, "/team"),
        ({"url": URL, "secret": "mine"}, "/secret"),
    ],
)
def test_a_fault_is_named_by_its_pointer(world, body, pointer):
    answer = world.ask("admin", "POST", PATH, body)
    assert answer.status_code == 400
    assert pointer in [fault["pointer"] for fault in answer.json()["errors"]]
    assert not Webhook.objects.exists()


def test_the_number_of_webhooks_of_a_team_is_limited(world, monkeypatch):
    monkeypatch.setattr("telemetry.services.webhooks.MOST_WEBHOOKS", 1)
    assert world.ask("admin", "POST", PATH, {"url": URL}).status_code == 201
    assert world.ask("admin", "POST", PATH, {"url": URL}).json()["errors"][0]["pointer"] == "/team"
