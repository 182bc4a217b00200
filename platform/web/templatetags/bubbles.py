"""What pages about lent bubbles need: short times, shares with a sign, a bar for a share."""

import re

from django import template
from django.utils.safestring import SafeString

from telemetry.core.wording import duration_text, number_text, printable
from web.templatetags.forebay_ui import progress

register = template.Library()
PREFIX = "bubble:"
OURS = re.compile(r"job-[0-9a-f-]{36}-(?P<rank>[0-9]+)")


@register.filter
def brief(seconds: float | None) -> str:
    """Return a span that may be far below a second: `24 ms`, `0.31 ms`, `1.2 s`."""
    if seconds is None:
        return "–"
    return duration_text(seconds) if seconds >= 1 else f"{number_text(1000 * seconds, 3)} ms"


@register.filter
def signed_share(value: float) -> str:
    """Return a change in per cent, with its sign: `+0.4 %`, `−1.2 %`."""
    sign = "−" if value < 0 else "+"
    return f"{sign}{100 * abs(value):.1f}\u202f%"


@register.filter
def device_words(label: str) -> str:
    """Return where something runs, in words: a device's label, or whose bubbles."""
    if not label.startswith(PREFIX):
        return printable(label)
    board = label.removeprefix(PREFIX)
    found = OURS.fullmatch(board)
    return f"bubbles of r{found['rank']}" if found else f"bubbles of {printable(board)}"


@register.simple_tag
def meter(share: float) -> SafeString:
    """Return a bar as long as a share."""
    return progress(round(100 * share), 100, "", "percent used")
