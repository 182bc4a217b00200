"""The distributions of one hyperparameter: sampling, the unit interval, membership, finite points.

Ranges include both ends. Quantised ranges are `low + k * q` for whole `k`, never above `high`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

Value = Any


def _on_grid(low: float, q: float, k: int) -> float:
    """`low + k * q` in decimal arithmetic, so that 0.1 + 2 * 0.1 is 0.3."""
    return float(Decimal(str(low)) + k * Decimal(str(q)))


def _steps(low: float, high: float, q: float) -> int:
    return int((Decimal(str(high)) - Decimal(str(low))) / Decimal(str(q)))


def same(left: Value, right: Value) -> bool:
    """Equality that tells True from 1 and a list from a number, but not 1 from 1.0."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Distribution:
    """What one hyperparameter may be; every kind maps the unit interval onto its values."""

    kind: ClassVar[str] = ""
    log: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]] = ()

    def from_unit(self, u: float) -> Value:
        """Return the value at the share `u` in [0, 1) of the probability mass."""
        raise NotImplementedError

    def to_unit(self, value: Value) -> float:
        """Return where a value stands in [0, 1]; the inverse of `from_unit` up to quantisation."""
        raise NotImplementedError

    def contains(self, value: Value) -> bool:
        """Return whether the value is one this distribution can give."""
        raise NotImplementedError

    def points(self) -> Sequence[Value] | None:
        """Return every value in order, or None where there are infinitely many."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the distribution as it stands in a job file."""
        return {"type": self.kind, **{field: _plain(getattr(self, field)) for field in self.fields}}


def _plain(value: Value) -> Value:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Uniform(Distribution):
    """A real number, uniform between `low` and `high`."""

    low: float
    high: float
    kind: ClassVar[str] = "uniform"
    fields: ClassVar[tuple[str, ...]] = ("low", "high")

    def from_unit(self, u: float) -> float:
        return min(self.low + u * (self.high - self.low), self.high)

    def to_unit(self, value: float) -> float:
        return 0.0 if self.high == self.low else (value - self.low) / (self.high - self.low)

    def contains(self, value: Value) -> bool:
        return _is_number(value) and self.low <= value <= self.high

    def points(self) -> Sequence[Value] | None:
        return [self.low] if self.low == self.high else None


@dataclass(frozen=True)
class LogUniform(Uniform):
    """A positive real number whose logarithm is uniform."""

    kind: ClassVar[str] = "loguniform"
    log: ClassVar[bool] = True

    def from_unit(self, u: float) -> float:
        value = math.exp(math.log(self.low) + u * (math.log(self.high) - math.log(self.low)))
        return min(max(value, self.low), self.high)

    def to_unit(self, value: float) -> float:
        span = math.log(self.high) - math.log(self.low)
        return 0.0 if span == 0 else (math.log(value) - math.log(self.low)) / span


class _Points(Sequence[Value]):
    """The points of a quantised range, computed when asked for: a range may have billions."""

    def __init__(self, distribution: "QUniform") -> None:
        self.distribution = distribution

    def __len__(self) -> int:
        return self.distribution.last + 1

    def __getitem__(self, index: Any) -> Value:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.distribution.at(index)


@dataclass(frozen=True)
class QUniform(Distribution):
    """One of `low, low + q, low + 2 q, ...` up to `high`, each with the same probability."""

    low: float
    high: float
    q: float
    kind: ClassVar[str] = "quniform"
    fields: ClassVar[tuple[str, ...]] = ("low", "high", "q")

    @property
    def last(self) -> int:
        """The index of the largest point that is not above `high`."""
        return _steps(self.low, self.high, self.q)

    def at(self, k: int) -> Value:
        """Return the point with index `k`."""
        return _on_grid(self.low, self.q, k)

    def nearest(self, value: float) -> Value:
        """Return the point nearest to a value."""
        return self.at(min(max(round((value - self.low) / self.q), 0), self.last))

    def from_unit(self, u: float) -> Value:
        return self.at(min(int(u * (self.last + 1)), self.last))

    def to_unit(self, value: float) -> float:
        return 0.0 if self.last == 0 else (value - self.low) / (self.at(self.last) - self.low)

    def contains(self, value: Value) -> bool:
        return _is_number(value) and same(self.nearest(value), value)

    def points(self) -> Sequence[Value]:
        return _Points(self)


@dataclass(frozen=True)
class QLogUniform(QUniform):
    """A log-uniform draw, moved to the nearest of `low, low + q, low + 2 q, ...`."""

    kind: ClassVar[str] = "qloguniform"
    log: ClassVar[bool] = True

    def from_unit(self, u: float) -> Value:
        return self.nearest(LogUniform(self.low, self.high).from_unit(u))

    def to_unit(self, value: float) -> float:
        return LogUniform(self.low, self.high).to_unit(value)


@dataclass(frozen=True)
class QRandInt(QUniform):
    """One of the whole numbers `low, low + q, ...` up to `high`."""

    low: int
    high: int
    q: int
    kind: ClassVar[str] = "qrandint"

    @property
    def last(self) -> int:
        return (self.high - self.low) // self.q

    def at(self, k: int) -> int:
        return self.low + k * self.q

    def contains(self, value: Value) -> bool:
        return isinstance(value, int) and super().contains(value)


@dataclass(frozen=True)
class RandInt(QRandInt):
    """A whole number from `low` to `high`, both included."""

    q: int = 1
    kind: ClassVar[str] = "randint"
    fields: ClassVar[tuple[str, ...]] = ("low", "high")


@dataclass(frozen=True)
class Choice(Distribution):
    """One of the listed values, each with the same probability."""

    values: tuple[Value, ...]
    kind: ClassVar[str] = "choice"
    fields: ClassVar[tuple[str, ...]] = ("values",)

    def from_unit(self, u: float) -> Value:
        return _plain(self.values[min(int(u * len(self.values)), len(self.values) - 1)])

    def index(self, value: Value) -> int:
        """Return the position of a value; ValueError where it is not listed."""
        for position, listed in enumerate(self.values):
            if same(listed, value):
                return position
        raise ValueError(f"{value!r} is not one of {list(self.values)}")

    def to_unit(self, value: Value) -> float:
        return self.index(value) / max(len(self.values) - 1, 1)

    def contains(self, value: Value) -> bool:
        return any(same(listed, value) for listed in self.values)

    def points(self) -> Sequence[Value]:
        return [_plain(value) for value in self.values]


@dataclass(frozen=True)
class Grid(Choice):
    """Listed values: every one in a grid search, a choice for every other search."""

    kind: ClassVar[str] = "grid"
