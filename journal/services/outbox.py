"""The outbox: Celery messages are doorbells, written with the change they announce."""

from datetime import timedelta
from typing import Any

import structlog
from celery import current_app
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from journal.models import OutboxMessage

log = structlog.get_logger(__name__)


@transaction.atomic
def ring(task: str, *, queue: str, args: list[Any]) -> None:
    """Announce a change to a worker once the caller's transaction has committed."""
    message = OutboxMessage.objects.create(task=task, queue=queue, args=args)
    transaction.on_commit(lambda: deliver(message))


def deliver(message: OutboxMessage) -> bool:
    """Hand a message to the broker and forget it; keep it for the sweeper when the broker is away."""
    try:
        current_app.send_task(message.task, args=message.args, queue=message.queue, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("broker.unreachable", task=message.task, error=str(error))
        OutboxMessage.objects.filter(pk=message.pk).update(attempts=message.attempts + 1)
        return False
    OutboxMessage.objects.filter(pk=message.pk).delete()
    return True


def sweep_outbox(older_than: timedelta = timedelta(seconds=2), limit: int = 200) -> int:
    """Send what a crash or a dead broker left behind; return how many went out."""
    waiting = OutboxMessage.objects.filter(created_at__lt=timezone.now() - older_than).order_by("pk")[:limit]
    sent = 0
    for message in waiting:
        if not deliver(message):
            break
        sent += 1
    return sent
