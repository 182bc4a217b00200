"""Sizes that remember where they came from.

While a forward pass is recorded, ``x.shape[0]`` is an ordinary int for Python (it indexes, compares and
formats) and carries the graph node that computes it, so that a batch size is not frozen into the graph.
"""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

if TYPE_CHECKING:
    from tuning.core.hydro.tracing.recorder import Recorder


class TracedInt(int):
    """A size read from a tensor: its value now, and the graph node that computes it for any input."""

    node: fx.Node
    recorder: "Recorder"

    def __new__(cls, value: int, node: fx.Node, recorder: "Recorder") -> "TracedInt":
        size = super().__new__(cls, value)
        size.node = node
        size.recorder = recorder
        return size

    def __deepcopy__(self, memo: dict[int, Any]) -> int:
        return int(self)

    def __copy__(self) -> int:
        return int(self)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def _arithmetic(function: Callable[[int, int], int], *, swapped: bool) -> Callable[[TracedInt, Any], Any]:
    def method(self: TracedInt, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        plain = tuple(int(item) if isinstance(item, TracedInt) else item for item in pair)
        value = function(*plain)
        if not isinstance(other, int) or isinstance(other, bool) or not isinstance(value, int):
            return value
        return self.recorder.record_size(function, pair, value)

    return method


for _name, _function in {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}.items():
    setattr(TracedInt, f"__{_name}__", _arithmetic(_function, swapped=False))
    setattr(TracedInt, f"__r{_name}__", _arithmetic(_function, swapped=True))


def _negated(self: TracedInt) -> TracedInt | int:
    return self.recorder.record_size(operator.neg, (self,), -int(self))


TracedInt.__neg__ = _negated  # type: ignore[method-assign, assignment]
