"""Trials of a study: pages by keyset over any column, filtered in the database."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import F, Func, JSONField, Q, QuerySet, TextField, Value

from cluster.core.keyset import (
    InvalidQuery,
    Reader,
    decode_cursor,
    encode_cursor,
    nullable,
    read_integer,
    read_json,
    read_number,
    read_text,
)
from jobs.models import Job
from tuning.core.states import TrialState
from tuning.models import Trial

# Columns a page can be sorted and filtered by, and how a cursor's value of it is read.
COLUMNS: dict[str, Reader] = {
    "number": read_integer,
    "state": read_text,
    "metric": nullable(read_number),
    "epochs": read_integer,
    "device_seconds": read_number,
    "started_s": nullable(read_number),
    "ended_s": nullable(read_number),
}
RANGED = [name for name in COLUMNS if name != "state"]
NEVER_EMPTY = {"number", "state", "epochs", "device_seconds"}
CONFIG = "config."
CONFIG_NAME = re.compile(r"[^\x00-\x1f]{1,100}")
BOUNDS = {"": "exact", "__gte": "gte", "__lte": "lte"}
MOST_ROWS = 500
LARGEST_STORED_INTEGER = 2**31 - 1


class Page(NamedTuple):
    """Some rows of a list, where the next ones begin, and how many there are in all pages."""

    items: Sequence[Trial]
    next_cursor: str | None
    total: int


def trial_page(
    job: Job,
    *,
    sort: str = "number",
    filters: Mapping[str, Any] | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page:
    """Return one page of a study's trials, without their curves and logs.

    `sort` is a column or `config.NAME`, with `-` in front for descending; empty values come last both
    ways and ties go by number. `filters` are those of `filter_trials`. Raises InvalidQuery.
    """
    if not 1 <= limit <= MOST_ROWS:
        raise InvalidQuery("limit", f"must be a whole number from 1 to {MOST_ROWS}")
    column, descending = _sorted_by(sort)
    rows = filter_trials(job, filters or {})
    total = rows.count()
    rows = rows.annotate(sort_key=_expression(column)).defer("curve", "log")
    if cursor:
        value, number = decode_cursor(cursor, sort, [nullable(_reader(column)), read_integer])
        rows = rows.filter(_after(column, value, number, descending))
    # Asked for explicitly where there can be none, nulls last would keep the database off its index.
    nulls = {} if column in NEVER_EMPTY else {"nulls_last": True}
    first = F("sort_key").desc(**nulls) if descending else F("sort_key").asc(**nulls)
    items = list(rows.order_by(first, "number")[: limit + 1])
    if len(items) <= limit:
        return Page(items, None, total)
    items = items[:limit]
    last: Any = items[-1]
    return Page(items, encode_cursor(sort, [last.sort_key, last.number]), total)


def filter_trials(job: Job, filters: Mapping[str, Any]) -> QuerySet[Trial]:
    """Return a study's trials that pass every filter.

    Keys: `state` (one or several, separated by commas), and each other column or `config.NAME` as it is
    (equal), with `__gte` (at least) or `__lte` (at most). Values may be texts, as they stand in an
    address. Raises InvalidQuery.
    """
    rows = Trial.objects.filter(job=job)
    for index, (key, value) in enumerate(filters.items()):
        name = re.sub("__[gl]te$", "", key)
        bound = BOUNDS[key[len(name) :]]
        if name == "state" and not key[len(name) :]:
            rows = rows.filter(state__in=_states(value))
        elif name in RANGED:
            rows = rows.filter(
                **{f"{name}__{bound}": _number(key, value, whole=name in ("number", "epochs"))}
            )
        elif name.startswith(CONFIG):
            _check_config_name(key, name)
            rows = _filter_config(rows, f"filter_{index}", name, bound, value)
        else:
            raise InvalidQuery(key, f"is no filter; there are {', '.join(COLUMNS)} and config.NAME")
    return rows


def trial_row(trial: Trial) -> dict[str, Any]:
    """Return a trial as a row of the trial table, with its id."""
    return {
        "id": str(trial.pk),
        "trial": trial.number,
        "config": trial.config,
        "metric": trial.metric,
        "epochs": trial.epochs,
        "state": trial.state,
        "reason": trial.reason,
        "device_seconds": trial.device_seconds,
        "started_s": trial.started_s,
        "ended_s": trial.ended_s,
    }


def config_names(job: Job) -> list[str]:
    """Return the names of every hyperparameter that some trial of a study has, sorted."""
    keys = Func(F("config"), function="jsonb_object_keys", output_field=TextField())
    names = Trial.objects.filter(job=job).order_by().annotate(key=keys).values_list("key", flat=True)
    return sorted(names.distinct())


def _sorted_by(sort: str) -> tuple[str, bool]:
    column = sort.removeprefix("-")
    if column.startswith(CONFIG):
        _check_config_name("sort", column)
    elif column not in COLUMNS:
        raise InvalidQuery(
            "sort", f"must be one of {', '.join(COLUMNS)} or config.NAME, with - for descending"
        )
    return column, sort.startswith("-")


def _check_config_name(parameter: str, name: str) -> None:
    if not CONFIG_NAME.fullmatch(name.removeprefix(CONFIG)):
        raise InvalidQuery(parameter, "must name a hyperparameter in 1 to 100 characters")


def _reader(column: str) -> Reader:
    return read_json if column.startswith(CONFIG) else COLUMNS[column]


def _expression(column: str) -> Func | F:
    if column.startswith(CONFIG):
        # A hyperparameter that is null counts as absent; jsonb orders numbers by value.
        return Func(
            F("config"),
            Value(column.removeprefix(CONFIG)),
            template="NULLIF(%(expressions)s, 'null'::jsonb)",
            arg_joiner=" -> ",
            output_field=JSONField(),
        )
    return F(column)


def _after(column: str, value: Any, number: int, descending: bool) -> Q:
    if value is None:
        return Q(sort_key__isnull=True, number__gt=number)
    key = Value(value, JSONField()) if column.startswith(CONFIG) else Value(value)
    beyond = Q(sort_key__lt=key) if descending else Q(sort_key__gt=key)
    return beyond | Q(sort_key=key, number__gt=number) | Q(sort_key__isnull=True)


def _filter_config(rows: QuerySet[Trial], alias: str, name: str, bound: str, value: Any) -> QuerySet[Trial]:
    rows = rows.alias(**{alias: _expression(name)})
    try:
        plain = read_json(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        plain = None
    if bound == "exact":
        wanted = [Value(plain, JSONField()), *([Value(value, JSONField())] if isinstance(value, str) else [])]
        return rows.filter(**{f"{alias}__in": wanted})
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise InvalidQuery(f"{name}__{bound}", "must be a number")
    kind = Func(F(alias), function="jsonb_typeof", output_field=TextField())
    rows = rows.alias(**{f"{alias}_type": kind})
    return rows.filter(**{f"{alias}_type": "number", f"{alias}__{bound}": Value(plain, JSONField())})


def _states(value: Any) -> list[str]:
    names = value.split(",") if isinstance(value, str) else list(value)
    for name in names:
        if name not in list(TrialState):
            raise InvalidQuery("state", f"'{name}' is none of {', '.join(TrialState)}")
    return names


def _number(key: str, value: Any, *, whole: bool) -> float | int:
    try:
        number = int(value) if whole else float(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidQuery(key, "must be a whole number" if whole else "must be a number") from None
    if whole and abs(number) > LARGEST_STORED_INTEGER:
        raise InvalidQuery(key, f"must be at most {LARGEST_STORED_INTEGER}")
    return number
