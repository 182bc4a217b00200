"""Celery tasks of webhooks: ids in, one service call; the services see to it that nothing is sent twice."""

from uuid import UUID

from celery import shared_task

from telemetry.services.deliveries import deliver
from telemetry.services.webhooks import collect


@shared_task(name="recovery.alerts")
def alerts() -> None:
    """Turn new events into messages of webhooks, and ring for those that are due."""
    collect()


# Acknowledged at once: the row says whether an attempt was made, and the next `alerts` rings again.
@shared_task(name="recovery.deliver", acks_late=False)
def deliver_message(delivery_id: str, attempt: int) -> None:
    """Send one message."""
    deliver(UUID(delivery_id), attempt)
