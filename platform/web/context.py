"""The identifier of the request under way, for answers and log lines."""

import contextvars
import re
import secrets

_current: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
GIVEN = re.compile(r"[A-Za-z0-9._-]{8,100}")


def begin_request(given: str | None) -> str:
    """Start a request: take over a well-formed identifier of a proxy, or make one."""
    name = given if given and GIVEN.fullmatch(given) else secrets.token_hex(8)
    _current.set(name)
    return name


def request_id() -> str:
    """Return the identifier of the request under way."""
    return _current.get() or secrets.token_hex(8)
