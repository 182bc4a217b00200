"""Secrets: how they look, what of them is stored, and how remembered answers are sealed."""

import base64
import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from django.conf import settings

# Greppable by secret scanners: fb_<12 hex>_<64 hex>.
TOKEN = re.compile(r"fb_[0-9a-f]{12}_[0-9a-f]{64}")


class NewToken(NamedTuple):
    """A token at the only moment when it is known whole."""

    text: str
    prefix: str
    digest: str


def new_token() -> NewToken:
    """Return a token with a secret of 256 random bits."""
    prefix = f"fb_{secrets.token_hex(6)}"
    text = f"{prefix}_{secrets.token_hex(32)}"
    return NewToken(text, prefix, digest_of(text))


def prefix_of(token: str) -> str | None:
    """Return the public part of a token, or None for what cannot be one."""
    return token.rpartition("_")[0] if TOKEN.fullmatch(token) else None


def new_one_time_secret() -> str:
    """Return a secret for a login link or a WebSocket ticket."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return what is stored of a random secret; a slow hash adds nothing to 256 bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def same(left: str, right: str) -> bool:
    """Compare without telling by the time it takes."""
    return hmac.compare_digest(left, right)


def seal(text: str, key: str) -> str:
    """Hide a text from whoever reads only the database: a keystream of SHAKE-256 under both secrets.

    `key` is used for one text only and is itself not stored.
    """
    nonce = secrets.token_bytes(16)
    return base64.b64encode(nonce + _xor(text.encode(), key, nonce)).decode()


def unseal(sealed: str, key: str) -> str:
    """Return the text that `seal` hid."""
    raw = base64.b64decode(sealed)
    return _xor(raw[16:], key, raw[:16]).decode()


def _xor(data: bytes, key: str, nonce: bytes) -> bytes:
    material = b"forebay sealed answer\0" + hashlib.sha256(settings.SECRET_KEY.encode()).digest()
    material += hashlib.sha256(key.encode()).digest() + nonce
    stream = hashlib.shake_256(material).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream, strict=True))
