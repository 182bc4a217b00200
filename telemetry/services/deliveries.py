"""Sending the messages of webhooks: once per attempt, to an address that was looked at, within seconds."""

import asyncio
import ipaddress
import json
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import httpx
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from telemetry.core.errors import InvalidWebhook
from telemetry.core.states import DeliveryState
from telemetry.core.webhooks.alerts import next_try
from telemetry.core.webhooks.signing import signed_headers
from telemetry.core.webhooks.targets import Address, Network, Target, read_target, refusal
from telemetry.models import Webhook, WebhookDelivery
from telemetry.services.webhooks import HANDED, secret_for

DEADLINE_S, CONNECT_S = 10.0, 5.0
GONE = 410


@dataclass(frozen=True)
class Outcome:
    """What became of an attempt: the receiver's status, or why there is none. Its answer is not read."""

    status: int | None
    error: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the receiver has the message."""
        return self.status is not None and 200 <= self.status < 300


def deliver(delivery_id: UUID, attempt: int) -> bool:
    """Send a message unless somebody has begun this attempt already; return whether it was accepted.

    The attempt is counted before anything is sent: a process that dies meanwhile costs one attempt.
    """
    now = timezone.now()
    begun = WebhookDelivery.objects.filter(
        pk=delivery_id, state=DeliveryState.WAITING, attempts=attempt, webhook__disabled_reason=""
    ).update(attempts=F("attempts") + 1, next_at=now + HANDED)
    if not begun:
        return False
    row = WebhookDelivery.objects.select_related("webhook").get(pk=delivery_id)
    body = json.dumps(row.body, separators=(",", ":"))
    headers = signed_headers(secret_for(row.webhook), f"msg_{row.pk}", now, body)
    outcome = send(row.webhook.url, body, headers, settings.WEBHOOK_NETWORKS)
    _record(row, outcome)
    return outcome.accepted


def send(url: str, body: str, headers: dict[str, str], allowed: Sequence[Network] = ()) -> Outcome:
    """Post a body to a URL whose address is public or allowed; never raises."""
    try:
        target = read_target(url, allowed)
        return asyncio.run(asyncio.wait_for(_post(target, body, headers, allowed), DEADLINE_S))
    except InvalidWebhook as error:
        return Outcome(None, f"refused: {'; '.join(sentence for _, sentence in error.faults)}")
    except TimeoutError:
        return Outcome(None, f"no answer within {DEADLINE_S:g} s")
    except (OSError, httpx.HTTPError, UnicodeError) as error:
        return Outcome(None, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


async def _post(target: Target, body: str, headers: dict[str, str], allowed: Sequence[Network]) -> Outcome:
    address = await _address_of(target, allowed)
    limits = httpx.Timeout(DEADLINE_S, connect=CONNECT_S)
    # No proxy of the environment, no redirect, and the address instead of the name: what was looked at is
    # what is connected to. The certificate still has to be the name's.
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=limits) as client:
        request = client.build_request(
            "POST",
            target.at(address),
            content=body.encode(),
            headers={**headers, "Host": target.authority},
            extensions={"sni_hostname": target.host},
        )
        # The body of the answer stays unread: nobody is shown it.
        answer = await client.send(request, stream=True)
        await answer.aclose()
    if answer.is_redirect:
        return Outcome(answer.status_code, "redirects are not followed")
    return Outcome(answer.status_code)


async def _address_of(target: Target, allowed: Sequence[Network]) -> Address:
    """Return the first address of a name, all of which must be fine; raise InvalidWebhook otherwise."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(row[4][0]).partition("%")[0]) for row in found]
    for address in addresses:
        if why := refusal(address, target.scheme, allowed):
            raise InvalidWebhook([("/url", why)])
    if not addresses:
        raise InvalidWebhook([("/url", "has no address")])
    return addresses[0]


@transaction.atomic
def _record(row: WebhookDelivery, outcome: Outcome) -> None:
    now = timezone.now()
    row.status = outcome.status
    row.error = outcome.error[:300] or ("" if outcome.accepted else f"answered {outcome.status}")
    wait = next_try(row.attempts, random.random())
    if outcome.accepted:
        row.state, row.ended_at = DeliveryState.DELIVERED, now
    elif outcome.status == GONE or wait is None:
        row.state, row.ended_at = DeliveryState.FAILED, now
        why = (
            "its receiver answered that it is gone (410)"
            if outcome.status == GONE
            else f"gave up: {row.error}"
        )
        Webhook.objects.filter(pk=row.webhook_id).update(disabled_reason=why[:300])
    else:
        row.next_at = now + wait
    row.save(update_fields=["state", "status", "error", "next_at", "ended_at"])
