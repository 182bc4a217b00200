"""Reads distributions from plain data and says precisely what is wrong with them."""

import math
from collections.abc import Mapping
from typing import Any

from tuning.core.errors import Problem, SpecError, escape
from tuning.core.space.distributions import (
    Choice,
    Distribution,
    Grid,
    LogUniform,
    QLogUniform,
    QRandInt,
    QUniform,
    RandInt,
    Uniform,
    same,
)

LARGEST = 2**53  # beyond it neighbouring whole numbers are one float, here and in every JSON reader
MOST_VALUES = 10_000

KINDS: dict[str, type[Distribution]] = {
    kind.kind: kind for kind in (Uniform, LogUniform, QUniform, QLogUniform, RandInt, QRandInt, Choice, Grid)
}
_LOG = ("loguniform", "qloguniform")
_WHOLE = ("randint", "qrandint")


def parse_distribution(data: Any, pointer: str = "") -> Distribution:
    """Return the distribution that `data` describes; SpecError names every broken rule."""
    problems: list[Problem] = []
    if not isinstance(data, Mapping):
        raise SpecError([Problem(pointer, "must be an object with a `type`")])
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SpecError([Problem(f"{pointer}/type", f"must be one of {', '.join(KINDS)}")])
    known = ("type", "when", *KINDS[kind].fields)
    for name in data:
        if name not in known:
            fields = ", ".join(KINDS[kind].fields)
            detail = f"is not a field of {kind}, which has {fields}"
            problems.append(Problem(f"{pointer}/{escape(str(name))}", detail))
    if issubclass(KINDS[kind], Choice):
        values = _values(data, pointer, problems)
        if not problems:
            return KINDS[kind](values)  # type: ignore[call-arg]
    else:
        numbers = _range(kind, data, pointer, problems)
        if not problems:
            return KINDS[kind](**numbers)
    raise SpecError(problems)


def _values(data: Mapping[str, Any], pointer: str, problems: list[Problem]) -> tuple[Any, ...]:
    values = data.get("values")
    if not isinstance(values, list | tuple):
        problems.append(Problem(f"{pointer}/values", "must be a list"))
        return ()
    if not 1 <= len(values) <= MOST_VALUES:
        rule = "must have at least one value" if not values else f"must have at most {MOST_VALUES} values"
        problems.append(Problem(f"{pointer}/values", rule))
        return ()
    for index, value in enumerate(values):
        if not _is_plain(value):
            detail = "must be a finite number, a text, true, false, null, or a list of those"
            problems.append(Problem(f"{pointer}/values/{index}", detail))
        elif len(values) <= 1000 and any(same(value, earlier) for earlier in values[:index]):
            problems.append(Problem(f"{pointer}/values/{index}", "repeats an earlier value"))
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(not isinstance(item, list | tuple) and _is_plain(item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= LARGEST
    return value is None or isinstance(value, str | bool)


def _range(kind: str, data: Mapping[str, Any], pointer: str, problems: list[Problem]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for field in KINDS[kind].fields:
        problem = _number_problem(data.get(field), whole=kind in _WHOLE) if field in data else "is required"
        if problem:
            problems.append(Problem(f"{pointer}/{field}", problem))
        else:
            numbers[field] = int(data[field]) if kind in _WHOLE else float(data[field])
    low, high, q = (numbers.get(field) for field in ("low", "high", "q"))
    if low is not None and kind in _LOG and low <= 0:
        problems.append(Problem(f"{pointer}/low", "must be above 0, because the range is logarithmic"))
    if low is not None and high is not None and low > high:
        problems.append(Problem(f"{pointer}/low", f"must not be above `high`, which is {high:g}"))
    if q is not None and q <= 0:
        problems.append(Problem(f"{pointer}/q", "must be above 0"))
    elif q and low is not None and high is not None and low <= high and (high - low) / q > LARGEST:
        problems.append(Problem(f"{pointer}/q", "must leave at most 2**53 points in the range"))
    return numbers


def _number_problem(value: Any, whole: bool) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a whole number" if whole else "must be a number"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if whole and value != int(value):
        return "must be a whole number"
    if (whole or isinstance(value, int)) and abs(value) > LARGEST:
        return "must be between -2**53 and 2**53"
    return None
