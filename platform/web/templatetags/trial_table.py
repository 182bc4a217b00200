"""The rows of the trial table, as texts: a page has hundreds of cells, which a template spells slowly."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from jobs.models import Job
from telemetry.core.wording import duration_text, number_text
from tuning.models import Trial
from web.templatetags.forebay_ui import metric_text, printable_text, state

register = template.Library()
REASON_CHARACTERS = 60
NOTHING = mark_safe('<span class="faint">–</span>')  # noqa: S308 (a constant)


class Line(NamedTuple):
    """A trial as the table shows it."""

    number: int
    address: str
    badge: SafeString
    metric: str
    epochs: int
    values: list[Any]
    device_time: str
    ended: str
    reason: SafeString | str


@register.simple_tag
def trial_lines(job: Job, rows: Iterable[Trial], shown: Sequence[str]) -> list[Line]:
    """Return the lines of a study's trials with the hyperparameters shown."""
    root = reverse("trial", args=[job.pk, 0]).removesuffix("0")
    return [
        Line(
            number=trial.number,
            address=f"{root}{trial.number}",
            badge=state("trial", trial.state),
            metric=metric_text(trial),
            epochs=trial.epochs,
            values=[_value(trial.config.get(name)) for name in shown],
            device_time=duration_text(trial.device_seconds),
            ended=duration_text(trial.ended_s),
            reason=_reason(trial.reason),
        )
        for trial in rows
    ]


def _value(value: Any) -> Any:
    return NOTHING if value is None else number_text(value)


def _reason(reason: str | None) -> SafeString | str:
    if not reason:
        return ""
    text = printable_text(reason)
    short = text if len(text) <= REASON_CHARACTERS else f"{text[: REASON_CHARACTERS - 1]}…"
    return format_html('<span title="{}">{}</span>', text, short)
