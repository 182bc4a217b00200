"""The audit log's hash chain: each entry's hash covers the one before it."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

GENESIS = "0" * 64


class Link(NamedTuple):
    """An audit entry as the chain sees it."""

    number: int
    content: dict[str, Any]
    hash: str


def link_hash(previous: str, content: dict[str, Any]) -> str:
    """Return the SHA-256 of the previous hash and the entry's canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(f"{previous}\n{canonical}".encode()).hexdigest()


def first_break(links: Iterable[Link], previous: str = GENESIS, number: int = 0) -> int | None:
    """Return the number of the first entry that does not follow, or None for an intact chain."""
    for link in links:
        number += 1
        if link.number != number or link.hash != link_hash(previous, link.content):
            return number
        previous = link.hash
    return None
