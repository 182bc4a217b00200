"""Webhooks: made and removed by admins of a team; their alerts, from the team's events."""

import secrets
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from cluster.models import Team, User
from journal.models import Event, Stream
from journal.services import audit, ring
from telemetry.core.errors import InvalidWebhook
from telemetry.core.states import DeliveryState
from telemetry.core.webhooks.alerts import KINDS, TEST, body_of, concerns, key_of, path_of, repeats
from telemetry.core.webhooks.signing import secret_of
from telemetry.core.webhooks.targets import read_target
from telemetry.models import Webhook, WebhookDelivery

DELIVER, QUEUE = "recovery.deliver", "recovery"
MOST_WEBHOOKS = 20
BATCH = 500
# A message that was handed to somebody is theirs for this long; then it is taken for lost.
HANDED = timedelta(seconds=60)
KEPT = timedelta(days=30)


class Made(NamedTuple):
    """A fresh webhook and its secret, which is shown this once."""

    webhook: Webhook
    secret: str


@transaction.atomic
def create_webhook(*, team: Team, user: User, actor: str, url: str, kinds: list[str]) -> Made:
    """Make a webhook for a team's alerts from now on; raise InvalidWebhook with every fault."""
    faults = []
    try:
        read_target(url, settings.WEBHOOK_NETWORKS)
    except InvalidWebhook as error:
        faults += error.faults
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        faults.append(("/kinds", f"choose some of {', '.join(KINDS)}"))
    if not faults and Webhook.objects.filter(team=team).count() >= MOST_WEBHOOKS:
        faults.append(("/team", f"has {MOST_WEBHOOKS} webhooks already; delete one first"))
    if faults:
        raise InvalidWebhook(faults)
    salt = secrets.token_hex(32)
    webhook = Webhook.objects.create(
        team=team,
        url=url,
        kinds=[kind for kind in KINDS if kind in kinds],
        salt=salt,
        created_by=user,
        seen_seq=_last_seq(team.pk),
    )
    audit(actor=actor, action="webhook.create", target=f"webhook:{webhook.pk}", team_id=team.pk,
          detail={"url": url, "kinds": webhook.kinds})  # fmt: skip
    return Made(webhook, secret_for(webhook))


@transaction.atomic
def delete_webhook(*, webhook_id: UUID, actor: str) -> None:
    """Remove a webhook with its messages; nothing is sent to it any more."""
    webhook = Webhook.objects.select_for_update().get(pk=webhook_id)
    audit(actor=actor, action="webhook.delete", target=f"webhook:{webhook.pk}", team_id=webhook.team_id,
          detail={"url": webhook.url})  # fmt: skip
    webhook.delete()


@transaction.atomic
def send_test(*, webhook_id: UUID, actor: str) -> WebhookDelivery:
    """Send a message that says who asked for it. A webhook that was switched off is on again."""
    webhook = Webhook.objects.select_for_update().get(pk=webhook_id)
    if webhook.disabled_reason:
        webhook.disabled_reason = ""
        webhook.seen_seq = _last_seq(webhook.team_id)
        webhook.save(update_fields=["disabled_reason", "seen_seq"])
    now = timezone.now()
    data = {"id": str(webhook.pk), "asked_by": actor, "team": str(webhook.team_id)}
    return _hand_out(webhook, TEST, data, now, seq=None)


@transaction.atomic
def send_again(*, delivery_id: UUID) -> WebhookDelivery:
    """Send a message once more that was given up or delivered; the receiver knows it by its id."""
    row = WebhookDelivery.objects.select_for_update().get(pk=delivery_id)
    if row.state != DeliveryState.WAITING:
        row.state, row.attempts, row.ended_at = DeliveryState.WAITING, 0, None
        row.next_at = timezone.now() + HANDED
        row.save(update_fields=["state", "attempts", "ended_at", "next_at"])
        _ring(row)
    return row


def secret_for(webhook: Webhook) -> str:
    """Return a webhook's secret."""
    return secret_of(settings.SECRET_KEY, webhook.salt)


def collect(now: datetime | None = None) -> int:
    """Turn new events into messages and ring for what is due; return how many were rung for.

    Events are read from the log by number, so that none is missed and none is sent twice by two collectors.
    """
    now = now or timezone.now()
    for webhook_id in list(_behind().values_list("pk", flat=True)):
        _collect_one(webhook_id, now)
    rung = _ring_due(now)
    WebhookDelivery.objects.filter(ended_at__lt=now - KEPT).delete()
    return rung


def _behind() -> Any:
    streams = dict(Stream.objects.filter(name__startswith="team:").values_list("name", "last_seq"))
    rows = Webhook.objects.filter(disabled_reason="").values_list("pk", "team_id", "seen_seq")
    late = [pk for pk, team_id, seen in rows if streams.get(f"team:{team_id}", 0) > seen]
    return Webhook.objects.filter(pk__in=late)


@transaction.atomic
def _collect_one(webhook_id: UUID, now: datetime) -> None:
    webhook = Webhook.objects.select_for_update(skip_locked=True).filter(pk=webhook_id).first()
    if webhook is None:
        return
    stream = f"team:{webhook.team_id}"
    events = list(Event.objects.filter(stream_id=stream, seq__gt=webhook.seen_seq).order_by("seq")[:BATCH])
    for event in events:
        if event.kind in webhook.kinds and concerns(event.kind, event.data):
            _alert(webhook, event, now)
    if events:
        webhook.seen_seq = events[-1].seq
        webhook.save(update_fields=["seen_seq"])


def _alert(webhook: Webhook, event: Event, now: datetime) -> None:
    key = key_of(event.kind, event.data)
    last = WebhookDelivery.objects.filter(webhook=webhook, key=key).first() if key else None
    if last is not None and repeats(event.kind, last.kind, last.created_at, now):
        last.repeats += 1
        last.save(update_fields=["repeats"])
        return
    _hand_out(webhook, event.kind, event.data, event.at, seq=event.seq, key=key)


def _hand_out(
    webhook: Webhook, kind: str, data: dict[str, Any], at: datetime, *, seq: int | None, key: str = ""
) -> WebhookDelivery:
    link = f"{settings.PUBLIC_URL}{path_of(kind, data)}"
    row = WebhookDelivery.objects.create(
        webhook=webhook,
        seq=seq,
        kind=kind,
        key=key,
        body=body_of(kind, at, data, link),
        next_at=timezone.now() + HANDED,
    )
    _ring(row)
    return row


def _ring(row: WebhookDelivery) -> None:
    # With the number of its attempt, so that a doubled message is sent once.
    ring(DELIVER, queue=QUEUE, args=[str(row.pk), row.attempts])


def _ring_due(now: datetime) -> int:
    due = WebhookDelivery.objects.filter(
        state=DeliveryState.WAITING, next_at__lte=now, webhook__disabled_reason=""
    )
    rung = 0
    for pk in list(due.order_by("next_at").values_list("pk", flat=True)[:BATCH]):
        with transaction.atomic():
            row = due.filter(pk=pk).select_for_update(of=("self",), skip_locked=True).first()
            if row is not None:
                row.next_at = now + HANDED
                row.save(update_fields=["next_at"])
                _ring(row)
                rung += 1
    return rung


def _last_seq(team_id: UUID) -> int:
    return Stream.objects.filter(pk=f"team:{team_id}").values_list("last_seq", flat=True).first() or 0
