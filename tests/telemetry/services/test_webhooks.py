"""Webhooks from event to receiver: each alert once, signed, tried again, never where it must not go."""

import json
import socket
import threading
from contextlib import suppress
from datetime import timedelta

import pytest
from django.utils import timezone
from standardwebhooks.webhooks import Webhook as Verifier

from journal.models import AuditEntry, OutboxMessage
from journal.services import Fact, record
from telemetry.core.errors import InvalidWebhook
from telemetry.core.states import VerdictKind
from telemetry.core.webhooks.alerts import RETRY_S
from telemetry.models import Webhook, WebhookDelivery
from telemetry.services import clear_verdict, deliveries
from telemetry.services.deliveries import deliver, send
from telemetry.services.webhooks import collect, create_webhook, delete_webhook, send_again, send_test


@pytest.fixture
def job(team, admin, demo):
    return demo.training(admin, team, slow_from=40)


def deliver_all():
    """Do what the workers would: send what is waiting and due."""
    return [deliver(row.pk, row.attempts) for row in WebhookDelivery.objects.filter(state="waiting")]


def test_an_incident_arrives_signed_and_leads_to_its_page(made, job, demo, receiver, settings):
    verdict = demo.incident(job)
    collect()
    assert deliver_all() == [True]
    path, headers, body = receiver.got[0]
    content = Verifier(made.secret).verify(body, headers)
    assert path == "/hook?a=b"
    assert headers["host"] == receiver.url.split("/")[2]
    assert content["type"] == "verdict.opened"
    assert content["data"]["slowdown"] == 2.5
    assert content["data"]["link"] == f"{settings.PUBLIC_URL}/incidents/{verdict.pk}"
    row = WebhookDelivery.objects.get()
    assert (row.state, row.status, row.attempts, row.error) == ("delivered", 204, 1, "")
    assert headers["webhook-id"] == f"msg_{row.pk}"


def test_each_event_becomes_one_message_however_often_it_is_collected(made, job, demo, receiver):
    verdict = demo.incident(job)
    demo.plan(job, verdict)
    for _ in range(3):
        collect()
    kinds = list(WebhookDelivery.objects.order_by("seq").values_list("kind", flat=True))
    assert kinds == ["verdict.opened", "reconfiguration.proposed"]
    assert all(deliver_all())
    assert deliver_all() == []
    row = WebhookDelivery.objects.first()
    assert not deliver(row.pk, 0), "a doubled message is sent once"
    assert len(receiver.got) == 2


def test_events_before_the_webhook_and_those_it_did_not_ask_for_are_not_sent(job, demo, made):
    record(f"team:{job.team_id}", [Fact("job.state", {"id": str(job.pk)}), Fact("trial.finished", {})])
    demo.incident(job, kind=VerdictKind.WORKLOAD_NOISE)
    collect()
    assert not WebhookDelivery.objects.exists()
    assert Webhook.objects.get().seen_seq > made.webhook.seen_seq


def test_the_same_about_the_same_device_is_said_once_but_its_end_is_said(
    made, team, admin, job, demo, receiver
):
    first = demo.incident(job)
    demo.incident(demo.training(admin, team, name="another"))
    collect()
    rows = WebhookDelivery.objects.all()
    assert [(row.kind, row.repeats) for row in rows] == [("verdict.opened", 1)]
    clear_verdict(verdict_id=first.pk, reason="healthy again")
    demo.incident(job)
    collect()
    assert [row.kind for row in rows.order_by("seq")] == [
        "verdict.opened",
        "verdict.cleared",
        "verdict.opened",
    ]


def test_a_receiver_that_fails_is_tried_again_until_it_accepts(made, job, demo, receiver):
    receiver.answers = [(500, {}), (429, {}), (200, {})]
    demo.incident(job)
    collect()
    waits = []
    for _ in range(3):
        begun = timezone.now()
        deliver_all()
        row = WebhookDelivery.objects.get()
        waits.append((row.next_at - begun).total_seconds())
        collect(now=row.next_at + timedelta(seconds=1))
    assert (row.state, row.attempts, row.status) == ("delivered", 3, 200)
    assert 0.8 * RETRY_S[0] < waits[0] < 60 < 0.8 * RETRY_S[1] < waits[1]
    ids = {headers["webhook-id"] for _, headers, _ in receiver.got}
    assert len(ids) == 1
    for _, headers, body in receiver.got:
        Verifier(made.secret).verify(body, headers)


def test_what_is_due_is_rung_for_once(made, job, demo, receiver, broker_at):
    broker_at("redis+socket:///nowhere/valkey.sock")
    receiver.answers = [(500, {})]
    demo.incident(job)
    collect()
    deliver_all()
    OutboxMessage.objects.all().delete()
    later = WebhookDelivery.objects.get().next_at + timedelta(seconds=1)
    assert [collect(now=later), collect(now=later)] == [1, 0]
    message = OutboxMessage.objects.get()
    assert (message.task, message.queue, message.args[1]) == ("recovery.deliver", "recovery", 1)


def test_a_receiver_that_never_accepts_is_given_up_and_switched_off_until_a_test(made, job, demo, receiver):
    receiver.answers = [(500, {})] * 20
    demo.incident(job)
    collect()
    for _ in range(len(RETRY_S) + 1):
        deliver_all()
    row = WebhookDelivery.objects.get()
    assert (row.state, row.attempts) == ("failed", len(RETRY_S) + 1)
    assert "gave up" in Webhook.objects.get().disabled_reason
    assert len(receiver.got) == len(RETRY_S) + 1
    receiver.answers = []
    send_test(webhook_id=made.webhook.pk, actor="ada")
    assert deliver_all() == [True]
    send_again(delivery_id=row.pk)
    assert deliver_all() == [True]
    assert receiver.got[-1][1]["webhook-id"] == receiver.got[0][1]["webhook-id"]


def test_gone_is_gone(made, receiver):
    receiver.answers = [(410, {})]
    send_test(webhook_id=made.webhook.pk, actor="ada")
    deliver_all()
    assert "410" in Webhook.objects.get().disabled_reason


def test_a_redirect_is_not_followed(made, receiver):
    elsewhere = receiver.url.replace("/hook?a=b", "/elsewhere")
    receiver.answers = [(302, {"Location": elsewhere}), (307, {"Location": elsewhere})]
    send_test(webhook_id=made.webhook.pk, actor="ada")
    deliver_all()
    row = WebhookDelivery.objects.get()
    assert (row.state, row.status, row.error) == ("waiting", 302, "redirects are not followed")
    deliver_all()
    assert [path for path, _, _ in receiver.got] == ["/hook?a=b", "/hook?a=b"]


def test_a_name_that_leads_to_a_private_address_is_refused_when_it_is_used(receiver, monkeypatch):
    port = int(receiver.url.split(":")[2].split("/")[0])
    answers = iter(["127.0.0.1", "10.0.0.1", "169.254.169.254"])
    real = socket.getaddrinfo

    def flip(host, *args, **kwargs):
        return real(next(answers) if host == "flips.example" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", flip)
    for _ in range(3):
        outcome = send(f"https://flips.example:{port}/", "{}", {})
        assert outcome.status is None
        assert "is not a public address" in outcome.error
    assert receiver.got == []


def test_one_private_address_among_several_is_enough_to_refuse(monkeypatch, receiver):
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)) for ip in ("8.8.8.8", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: rows)
    assert "127.0.0.1 is not a public address" in send("https://mixed.example/", "{}", {}).error


def test_without_the_operators_word_nothing_is_sent_to_this_machine(receiver):
    outcome = send(receiver.url, "{}", {})
    assert outcome.status is None
    assert "refused" in outcome.error
    assert receiver.got == []


def test_a_proxy_of_the_environment_is_not_asked(made, receiver, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    send_test(webhook_id=made.webhook.pk, actor="ada")
    assert deliver_all() == [True]


def test_a_receiver_that_answers_drop_by_drop_is_left_in_time(loopback_allowed, settings, monkeypatch):
    monkeypatch.setattr(deliveries, "DEADLINE_S", 0.5)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            with suppress(OSError):
                peer, _ = server.accept()
                with peer:
                    peer.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                    while not stop.wait(0.05):
                        peer.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        outcome = send(url, "{}", {}, settings.WEBHOOK_NETWORKS)
        stop.set()
        thread.join(10)
    assert outcome.status is None
    assert "no answer within" in outcome.error


def test_making_and_deleting_is_checked_and_audited(team, admin, made, receiver):
    with pytest.raises(InvalidWebhook) as error:
        create_webhook(team=team, user=admin, actor="ada", url="http://10.0.0.1/", kinds=["nonsense"])
    assert [pointer for pointer, _ in error.value.faults] == ["/url", "/kinds"]
    row = Webhook.objects.get()
    assert made.secret.removeprefix("whsec_") not in json.dumps(
        [str(value) for value in Webhook.objects.values_list()]
    )
    delete_webhook(webhook_id=row.pk, actor="ada")
    assert list(AuditEntry.objects.order_by("number").values_list("action", flat=True)) == [
        "webhook.create", "webhook.delete",
    ]  # fmt: skip
