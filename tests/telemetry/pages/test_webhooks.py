"""The page of webhooks."""

import pytest

from telemetry.models import Webhook, WebhookDelivery

FORM = {"url": "https://alerts.example.org/x", "kinds": ["verdict.opened"]}


@pytest.fixture
def webhook(people, as_):
    as_("admin").post("/webhooks", FORM)
    return Webhook.objects.get()


@pytest.mark.parametrize(("who", "status"), [(None, 302), ("viewer", 403), ("operator", 403), ("admin", 200)])
def test_webhooks_are_for_admins(webhook, as_, who, status):
    assert as_(who).get("/webhooks").status_code == status
    page = as_(who or "viewer").get("/tokens").content.decode()
    assert ('href="/webhooks"' in page) == (status == 200)
    for path in ("test", "delete"):
        answer = as_(who).post(f"/webhooks/{webhook.pk}/{path}").status_code
        assert answer == (302 if status == 200 else status)


def test_a_secret_is_shown_once(people, as_):
    page = as_("admin").post("/webhooks", FORM)
    assert b"whsec_" in page.content
    assert "no-store" in page["Cache-Control"]
    assert b"whsec_" not in as_("admin").get("/webhooks").content


def test_a_refused_address_is_explained_beside_its_field(people, as_):
    page = as_("admin").post("/webhooks", FORM | {"url": "https://192.168.1.1/"})
    assert page.status_code == 422
    assert page.context["errors"]["url"].startswith("192.168.1.1 is not a public address")
    assert not Webhook.objects.exists()


def test_tests_and_repetitions_stand_in_the_list_of_messages(webhook, as_):
    as_("admin").post(f"/webhooks/{webhook.pk}/test")
    row = WebhookDelivery.objects.get()
    WebhookDelivery.objects.update(state="failed", error="answered 500", attempts=10)
    assert b"answered 500" in as_("admin").get("/webhooks").content
    assert as_("other-admin").post(f"/webhooks/{webhook.pk}/deliveries/{row.pk}").status_code == 302
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("waiting", 0)


def test_foreign_webhooks_do_not_exist(webhook, as_):
    assert webhook.url.encode() not in as_("stranger").get("/webhooks").content
    for path in ("test", "delete"):
        assert as_("stranger").post(f"/webhooks/{webhook.pk}/{path}").status_code == 404
    as_("admin").post(f"/webhooks/{webhook.pk}/delete")
    assert not Webhook.objects.exists()
