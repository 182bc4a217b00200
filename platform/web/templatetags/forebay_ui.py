"""What templates need to speak like the rest of the product: states, numbers, times, icons, addresses."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django import template
from django.http import HttpRequest, QueryDict
from django.template.context import RequestContext
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cluster.core.roles import Permission
from cluster.core.states import DEVICE_LOOK, DeviceState
from cluster.queries import teams_where
from jobs.core.states import LOOK, RECONFIGURATION_LOOK, JobState, ReconfigurationState
from telemetry.core.states import (
    BURN_IN_LOOK,
    DELIVERY_LOOK,
    KIND_LABELS,
    VERDICT_LOOK,
    DeliveryState,
    VerdictKind,
    VerdictState,
)
from telemetry.core.wording import bytes_text, duration_text, number_text, printable
from telemetry.queries.incidents import waiting_for
from tuning.core.states import TRIAL_LOOK, TrialState
from tuning.pages.form import text_of
from web.services.preferences import KNOWN

register = template.Library()
register.filter("number", number_text)
register.filter("duration", duration_text)
register.filter("bytes", bytes_text)

LOOKS: dict[str, dict[str, tuple[str, str]]] = {
    "job": {str(state): look for state, look in LOOK.items()},
    "trial": {str(state): look for state, look in TRIAL_LOOK.items()},
    "device": {str(state): look for state, look in DEVICE_LOOK.items()},
    "verdict": {str(state): look for state, look in VERDICT_LOOK.items()},
    "reconfiguration": {str(state): look for state, look in RECONFIGURATION_LOOK.items()},
    "delivery": {str(state): look for state, look in DELIVERY_LOOK.items()},
    "burn-in": {str(state): look for state, look in BURN_IN_LOOK.items()},
}
# A state is told by its shape as well as by its colour.
SHAPES = {
    JobState.QUEUED: "clock",
    JobState.RUNNING: "spin",
    JobState.COMPLETED: "check",
    JobState.FAILED: "cross",
    JobState.CANCELLED: "stop",
    TrialState.WAITING: "clock",
    TrialState.STOPPED: "pause",
    TrialState.CUT: "stop",
    DeviceState.HEALTHY: "check",
    DeviceState.SUSPECT: "alert",
    DeviceState.CORDONED: "stop",
    DeviceState.DRAINING: "pause",
    DeviceState.LOST: "cross",
    DeliveryState.DELIVERED: "check",
    VerdictState.OPEN: "alert",
    VerdictState.CLEARED: "check",
    ReconfigurationState.PROPOSED: "clock",
    ReconfigurationState.APPROVED: "spin",
    ReconfigurationState.REJECTED: "cross",
    ReconfigurationState.EXPIRED: "clock",
    ReconfigurationState.SUPERSEDED: "repeat",
    ReconfigurationState.EXECUTING: "spin",
    ReconfigurationState.EXECUTED: "check",
}


@register.filter("printable")
def printable_text(value: Any) -> str:
    """Return foreign text without control and bidirectional characters; nothing for nothing."""
    return "" if value is None else printable(str(value))


@register.simple_tag
@lru_cache(maxsize=512)
def state(kind: str, value: str, substate: str = "") -> SafeString:
    """Return the badge of a job's, a trial's or a device's state."""
    label, colour = LOOKS[kind].get(value, (value, "muted"))
    shape = next((name for known, name in SHAPES.items() if known.value == value), "dot")
    return format_html('<span class="badge {}">{}{}</span>', colour, icon(shape), substate or label)


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return a decorative icon of the sprite that the page carries."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="#i-{}"></use></svg>', name)


@register.simple_tag
def ago(moment: datetime | None) -> SafeString | str:
    """Return a moment relative to now, with the exact time in UTC behind it; scripts keep it fresh."""
    if moment is None:
        return "–"
    exact = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC" class="nowrap">{}</time>',
        exact.isoformat(),
        exact.strftime("%Y-%m-%d %H:%M:%S"),
        since_text((timezone.now() - moment).total_seconds()),
    )


def since_text(seconds: float) -> str:
    """Return how long ago something was: `just now`, `5 min ago`, `3 h ago`, `12 d ago`, `in 2 h`."""
    size = abs(seconds)
    if size < 5:
        return "just now"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if size >= unit:
            return f"{int(size // unit)} {name} ago" if seconds > 0 else f"in {int(size // unit)} {name}"
    return "just now"


@register.simple_tag
def progress(done: int, total: int, look: str = "", label: str = "finished") -> SafeString:
    """Return a bar that says how much is done; drawn without inline styles."""
    share = min(done / total, 1.0) if total else 0.0
    return format_html(
        '<div class="progress {}"><svg role="img" aria-label="{} of {} {}" viewBox="0 0 100 6" '
        'preserveAspectRatio="none">'
        '<rect class="fill" width="{}" height="6"></rect></svg></div>',
        look,
        done,
        total,
        label,
        f"{100 * share:.2f}",
    )


@register.simple_tag(takes_context=True)
def address(context: RequestContext, **changes: Any) -> str:
    """Return this page's address with some of its parameters changed; an empty value removes one."""
    request: HttpRequest = context["request"]
    query = request.GET.copy()
    for key, value in changes.items():
        query.pop(key, None)
        if value not in (None, ""):
            query[key] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.simple_tag(takes_context=True)
def shell(context: RequestContext) -> dict[str, Any]:
    """Return what the frame around every page shows of its reader."""
    user = context["request"].user
    may_administer = teams_where(user, Permission.ADMINISTER).exists()
    return {
        **{name: preference(user, name) for name in KNOWN},
        "may_submit": teams_where(user, Permission.SUBMIT).exists(),
        "may_administer": may_administer,
        "waiting": waiting_for(user).count() if may_administer else 0,
    }


def preference(user: Any, name: str) -> str:
    """Return a person's preference, or what everybody starts with."""
    value = (getattr(user, "preferences", None) or {}).get(name)
    return value if value in KNOWN[name] else KNOWN[name][0]


@register.filter
def at(mapping: Mapping[str, Any] | None, key: str) -> Any:
    """Return the value under a key that a template cannot spell, or None."""
    return mapping.get(key) if mapping else None


@register.filter
def finite(value: Any) -> bool:
    """Return whether a number can be drawn."""
    return isinstance(value, int | float) and math.isfinite(value)


@register.filter
def initials(name: str) -> str:
    """Return up to two letters that stand for a person."""
    return printable(name)[:2] or "?"


@register.inclusion_tag("parts/sort_head.html", takes_context=True)
def sort_head(
    context: RequestContext, column: str, label: str, style: str = "", prefix: str = ""
) -> dict[str, Any]:
    """Return a table head that sorts by its column, the other way round when it does already."""
    key, sort = prefix + column, str(context.get("sort") or "number")
    is_sorted = sort.removeprefix("-") == key
    wanted = f"-{key}" if sort == key or (not is_sorted and style == "num" and key != "number") else key
    query = QueryDict(context.get("query", ""), mutable=True)
    query["sort"] = wanted
    return {
        "job": context["job"],
        "label": label,
        "style": style,
        "query": query.urlencode(),
        "direction": ("descending" if sort.startswith("-") else "ascending") if is_sorted else "",
    }


@register.filter
def metric_text(trial: Any) -> str:
    """Return a trial's metric; one that was reported but is not finite says so."""
    if trial.metric is not None:
        return number_text(trial.metric)
    return "NaN" if trial.reason and "finite" in trial.reason else "–"


@register.filter
def span_of(target: Any) -> float | None:
    """Return how long something ran, in seconds."""
    return None if target.end_s is None else target.end_s - target.start_s


@register.filter
def share(value: float) -> str:
    """Return a fraction in per cent."""
    return f"{100 * value:.0f}\u202f%"


@register.filter
def whole(value: float) -> str:
    """Return a count without a fraction."""
    return number_text(round(value))


@register.filter
def space_error(errors: Mapping[str, str], index: int) -> dict[str, str]:
    """Return the faults of one row of the space by their part."""
    prefix = f"space.{index}."
    return {key.removeprefix(prefix): text for key, text in errors.items() if key.startswith(prefix)}


@register.filter
def field_text(value: Any) -> str:
    """Return a value as it stands in a field."""
    return text_of(value)


@register.filter
def error_text(exception: Any, otherwise: str) -> str:
    """Return an error's own sentence if it is one of ours; Django's are for programmers."""
    text = str(exception)
    return text if text.endswith(".") and "path" not in text else otherwise


@register.filter
def thousandth(milli: int) -> str:
    """Return thousandths of devices in devices."""
    return number_text(milli / 1000)


@register.filter
def words(name: str) -> str:
    """Return a key as words."""
    return name.replace("_", " ")


@register.filter
def precise(value: float) -> str:
    """Return a measured number with three significant digits."""
    return number_text(value, 3)


@register.filter
def verdict_label(kind: str) -> str:
    """Return what people call a kind of verdict."""
    return KIND_LABELS[VerdictKind(kind)] if kind in set(VerdictKind) else words(kind)


@register.filter
def times(factor: float | None) -> str:
    """Return a slowdown as `2.5×`."""
    return "–" if factor is None else f"{number_text(factor, 3)}\u202f×"
