"""Identifiers that sort by the time they were made (UUID version 7, RFC 9562, section 5.7)."""

import secrets
import time
from uuid import UUID


def uuid7_at(now_ms: int, random_bits: int) -> UUID:
    """Return the UUIDv7 of a Unix time in milliseconds and 74 random bits."""
    value = (now_ms & (2**48 - 1)) << 80
    value |= 0x7 << 76 | ((random_bits >> 62) & 0xFFF) << 64
    value |= 0b10 << 62 | (random_bits & (2**62 - 1))
    return UUID(int=value)


def new_id() -> UUID:
    """Return a fresh identifier; later ones sort after earlier ones, to the millisecond."""
    return uuid7_at(time.time_ns() // 1_000_000, secrets.randbits(74))
