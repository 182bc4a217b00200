"""Secrets and signatures of the Standard Webhooks scheme (standardwebhooks.com, symmetric signatures `v1`).

A secret is derived from the site's secret key and a salt, so that the database alone gives nothing away.
"""

import base64
import hashlib
import hmac
from datetime import datetime

from standardwebhooks.webhooks import Webhook


def secret_of(site_key: str, salt: str) -> str:
    """Return a webhook's secret as receivers configure it: `whsec_` and 256 bits in base64."""
    digest = hmac.new(site_key.encode(), b"forebay webhook\0" + salt.encode(), hashlib.sha256).digest()
    return "whsec_" + base64.b64encode(digest).decode()


def signed_headers(secret: str, message_id: str, at: datetime, body: str) -> dict[str, str]:
    """Return the headers that let a receiver check who sent the body, unaltered, and when."""
    return {
        "Content-Type": "application/json",
        "User-Agent": "forebay-webhooks/1",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, at, body),
    }
