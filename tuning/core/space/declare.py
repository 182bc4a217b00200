"""The words with which people declare a space in Python: `uniform(0.5, 0.99)`, `when("opt", "sgd", {...})`.

Each word checks its arguments at once, so that a wrong range is an error where it is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuning.core.errors import Problem, SpecError, escape
from tuning.core.space.distributions import Choice, Distribution
from tuning.core.space.parse import parse_distribution
from tuning.core.space.space import (
    Condition,
    Parameter,
    Space,
    check_name,
    ordered,
    parse_conditions,
    parse_space,
)


def uniform(low: float, high: float) -> Distribution:
    """A real number, uniform from `low` to `high`."""
    return parse_distribution({"type": "uniform", "low": low, "high": high})


def loguniform(low: float, high: float) -> Distribution:
    """A positive real number with a uniform logarithm, from `low` to `high`."""
    return parse_distribution({"type": "loguniform", "low": low, "high": high})


def quniform(low: float, high: float, q: float) -> Distribution:
    """One of `low, low + q, ...` that is not above `high`."""
    return parse_distribution({"type": "quniform", "low": low, "high": high, "q": q})


def qloguniform(low: float, high: float, q: float) -> Distribution:
    """A log-uniform draw moved to the nearest of `low, low + q, ...`, never above `high`."""
    return parse_distribution({"type": "qloguniform", "low": low, "high": high, "q": q})


def randint(low: int, high: int) -> Distribution:
    """A whole number from `low` to `high`, both included."""
    return parse_distribution({"type": "randint", "low": low, "high": high})


def qrandint(low: int, high: int, q: int) -> Distribution:
    """One of the whole numbers `low, low + q, ...` that is not above `high`."""
    return parse_distribution({"type": "qrandint", "low": low, "high": high, "q": q})


def choice(values: Sequence[Any]) -> Distribution:
    """One of the listed values."""
    return parse_distribution({"type": "choice", "values": _listed(values)})


def grid(values: Sequence[Any]) -> Distribution:
    """Every one of the listed values in a grid search; in any other search the same as `choice`."""
    return parse_distribution({"type": "grid", "values": _listed(values)})


def _listed(values: Any) -> Any:
    return list(values) if isinstance(values, Sequence | range) and not isinstance(values, str) else values


class When(Mapping[str, "When | Distribution"]):
    """Parameters that exist only where another one has a given value (or one of several)."""

    def __init__(self, name: str, values: tuple[Any, ...], parameters: Mapping[str, Any]) -> None:
        self.name, self.values_, self.parameters = name, values, parameters

    def __getitem__(self, name: str) -> "When":
        return When(self.name, self.values_, {name: self.parameters[name]})

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)


def when(name: str, value: Any, parameters: Mapping[str, Any]) -> When:
    """Declare parameters that exist only where `name` is `value` (a tuple: one of several values).

    Stands in a space under any label, `{"sgd only": when("optimizer", "sgd", {...})}`, or unpacked,
    `{**when("optimizer", "sgd", {...})}`. May be nested.
    """
    return When(name, value if isinstance(value, tuple) else (value,), parameters)


def declared_space(declaration: Mapping[str, Any] | Space) -> Space:
    """Return the space of a declaration: words of this module, plain data, or constants."""
    if isinstance(declaration, Space):
        return declaration
    if not isinstance(declaration, Mapping):
        raise SpecError([Problem("", "a space must be a dictionary of parameters")])
    return ordered(list(_parameters(declaration, ())))


def _parameters(declaration: Mapping[str, Any], conditions: tuple[Condition, ...]) -> Iterator[Parameter]:
    seen: set[str] = set()
    for name, entry in declaration.items():
        if isinstance(entry, When):
            found = list(_parameters(entry.parameters, (*conditions, Condition(entry.name, entry.values_))))
        else:
            check_name(name, f"/{escape(str(name))}")
            found = list(_parameter(name, entry, conditions))
        for parameter in found:
            if parameter.name in seen:
                raise SpecError([Problem(f"/{escape(parameter.name)}", "is declared twice")])
            seen.add(parameter.name)
            yield parameter


def _parameter(name: str, entry: Any, conditions: tuple[Condition, ...]) -> Iterator[Parameter]:
    if isinstance(entry, Distribution):
        yield Parameter(name, entry, conditions)
    elif isinstance(entry, Mapping):
        parsed = parse_space({name: {k: v for k, v in entry.items() if k != "when"}}).parameters[0]
        own = parse_conditions(entry, f"/{escape(name)}")
        yield Parameter(name, parsed.distribution, (*conditions, *own))
    else:
        yield Parameter(name, Choice((tuple(entry) if isinstance(entry, list) else entry,)), conditions)
