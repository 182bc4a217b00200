"""A hyperparameter of several trials at once, as a training function sees it."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class PerTrial(list[Any]):
    """One value per trial; arithmetic is element by element, so `0.1 * config["lr"]` keeps its meaning."""

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> "PerTrial":
        others: Iterable[Any] = other if isinstance(other, PerTrial) else [other] * len(self)
        return PerTrial(operation(mine, theirs) for mine, theirs in zip(self, others, strict=True))

    def __add__(self, other: Any) -> "PerTrial":
        return self._with(other, operator.add)

    def __radd__(self, other: Any) -> "PerTrial":
        return self._with(other, lambda mine, theirs: theirs + mine)

    def __sub__(self, other: Any) -> "PerTrial":
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> "PerTrial":
        return self._with(other, lambda mine, theirs: theirs - mine)

    def __mul__(self, other: Any) -> "PerTrial":
        return self._with(other, operator.mul)

    def __rmul__(self, other: Any) -> "PerTrial":
        return self._with(other, operator.mul)

    def __truediv__(self, other: Any) -> "PerTrial":
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> "PerTrial":
        return self._with(other, lambda mine, theirs: theirs / mine)

    def __pow__(self, other: Any) -> "PerTrial":
        return self._with(other, operator.pow)

    def __neg__(self) -> "PerTrial":
        return PerTrial(-value for value in self)


def joint_config(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one configuration for all trials: values they share, and `PerTrial` where they differ."""
    joint: dict[str, Any] = {}
    for name in configs[0]:
        values = [config[name] for config in configs]
        joint[name] = values[0] if all(value == values[0] for value in values) else PerTrial(values)
    return joint
