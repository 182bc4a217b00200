"""Memory that the C library keeps for later goes back to the system after a change of layout."""

import ctypes
from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; other C libraries have none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None


def give_back() -> None:
    """Return free pages to the system.

    Buffers of every layout have other sizes; the gaps between them would add up to some 0.1 MB a change.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
