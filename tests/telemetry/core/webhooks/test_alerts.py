"""Signatures, what alerts say, what repeats what, and when they are tried again."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from telemetry.core.states import FAULTS, VerdictKind
from telemetry.core.webhooks.alerts import (
    KINDS,
    LARGEST_BODY,
    QUIET,
    RETRY_S,
    body_of,
    concerns,
    key_of,
    next_try,
    path_of,
    repeats,
)
from telemetry.core.webhooks.signing import secret_of, signed_headers

NOW = datetime.now(UTC)


def test_a_receiver_can_check_a_signature_by_library_and_by_hand():
    secret = secret_of("site key", "salt")
    headers = signed_headers(secret, "msg_1", datetime.now(UTC), '{"a":1}')
    assert Webhook(secret).verify('{"a":1}', headers) == {"a": 1}
    key = base64.b64decode(secret.removeprefix("whsec_"))
    assert len(key) == 32
    content = f"msg_1.{headers['webhook-timestamp']}.".encode() + b'{"a":1}'
    wanted = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"


@pytest.mark.parametrize("change", ["body", "id", "secret", "old"])
def test_what_was_altered_does_not_verify(change):
    at = datetime.now(UTC) - timedelta(hours=change == "old")
    secret = secret_of("site key", "salt")
    headers = signed_headers(secret, "msg_1", at, "{}")
    if change == "id":
        headers["webhook-id"] = "msg_2"
    other = secret_of("site key", "other salt") if change == "secret" else secret
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify("[]" if change == "body" else "{}", headers)


def test_secrets_depend_on_the_site_and_on_the_salt():
    assert len({secret_of(key, salt) for key in "ab" for salt in "cd"}) == 4


@pytest.mark.parametrize("kind", list(VerdictKind))
def test_only_faults_are_alerts(kind):
    assert concerns("verdict.opened", {"kind": kind}) == (kind in FAULTS)
    assert not concerns("trial.finished", {})


def test_one_device_called_slow_by_two_jobs_is_one_alert():
    one = {"id": 1, "job": "a", "device": "d", "kind": "device_fail_slow", "subject": {"rank": 1}}
    other = {**one, "job": "b", "subject": {"rank": 7}}
    assert key_of("verdict.opened", one) == key_of("verdict.opened", other) != ""
    assert key_of("verdict.opened", {**one, "kind": "fail_stop"}) != key_of("verdict.opened", one)
    assert key_of("verdict.opened", {**one, "device": None}) != key_of(
        "verdict.opened", {**other, "device": None}
    )
    assert key_of("reconfiguration.proposed", one) == ""


@pytest.mark.parametrize(
    ("last", "age", "expected"),
    [("verdict.opened", QUIET / 2, True), ("verdict.opened", QUIET * 2, False),
     ("verdict.cleared", QUIET / 2, False), (None, QUIET / 2, False)],
)  # fmt: skip
def test_the_same_is_said_once_but_every_change_is_said(last, age, expected):
    assert repeats("verdict.opened", last, NOW - age, NOW) == expected


def test_a_body_is_never_too_large_and_always_leads_somewhere():
    small = body_of("verdict.opened", NOW, {"id": "x"}, "https://f/incidents/x")
    assert (small["type"], small["data"]["link"]) == ("verdict.opened", "https://f/incidents/x")
    large = body_of("verdict.opened", NOW, {"id": "x", "evidence": ["y" * LARGEST_BODY]}, "l")
    assert len(json.dumps(large)) < 300
    assert large["data"] == {"id": "x", "link": "l", "truncated": True}
    assert {path_of(kind, {"id": "x"}).split("/")[1] for kind in KINDS} == {
        "incidents",
        "reconfigurations",
        "jobs",
    }


def test_tries_get_rarer_and_end():
    waits = [next_try(attempt, 0.5) for attempt in range(1, len(RETRY_S) + 1)]
    assert waits == sorted(waits)
    assert next_try(len(RETRY_S) + 1, 0.5) is None
