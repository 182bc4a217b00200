"""What a job asks for, in whole thousandths of a device; fractions are refused at the door."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from cluster.core.errors import RequestError

MILLI = 1000
MOST_DEVICES = 1_000_000
MOST_TASKS = 100_000


@dataclass(frozen=True, slots=True)
class TaskShape:
    """`count` equal tasks of a gang.

    Attributes:
        devices: of each task.
        milli: of each device, 1000 for a whole one.
        memory_bytes: of each device; instead of `milli`, the share of a device's memory counts.
        may_split: a task may spread over nodes (a gang given by its number of devices only).
        min_count: fewest tasks with which an elastic job starts; 0 for all of them.
    """

    count: int = 1
    devices: int = 1
    milli: int = MILLI
    memory_bytes: int = 0
    may_split: bool = False
    min_count: int = 0

    def __post_init__(self) -> None:
        _within("tasks", self.count, 1, MOST_TASKS)
        _within("devices", self.devices, 0, MOST_DEVICES)
        _within("milli", self.milli, 1, MILLI)
        _within("memory_bytes", self.memory_bytes, 0, 2**60)
        _within("min_tasks", self.min_count, 0, self.count)

    def total_milli(self) -> int:
        """Return the thousandths all tasks take together."""
        return self.count * self.devices * self.milli


def gang(devices: int, milli: int = MILLI) -> tuple[TaskShape, ...]:
    """Return the request for so many devices, wherever the placement rule puts them."""
    _within("devices", devices, 0, MOST_DEVICES)
    return (TaskShape(1, devices, milli, may_split=True),)


def milli_of(value: object, field: str = "devices") -> int:
    """Return a number of devices such as 2, 0.5 or "0.25" in exact thousandths.

    Raises:
        RequestError: not a number, not finite, negative, above a million, or finer than a thousandth.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            raise InvalidOperation
        # repr, so that the float 0.1 is the tenth its author wrote
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except (InvalidOperation, ValueError):
        raise RequestError(field, f"{value!r} is not a number") from None
    if not number.is_finite():
        raise RequestError(field, f"{value} is not a finite number")
    if number < 0:
        raise RequestError(field, f"{value} is negative")
    if number > MOST_DEVICES:
        raise RequestError(field, f"{value} is beyond {MOST_DEVICES}")
    milli = number * MILLI
    if milli != milli.to_integral_value():
        raise RequestError(field, f"{value} is finer than a thousandth of a device")
    return int(milli)


def memory_milli(memory_bytes: int, device_memory_bytes: int) -> int:
    """Return the share of a device for so much of its memory, rounded up; above 1000 if too much."""
    if device_memory_bytes <= 0:
        return MILLI
    return max(1, math.ceil(memory_bytes * MILLI / device_memory_bytes))


def total_milli(tasks: Sequence[TaskShape]) -> int:
    """Return the thousandths a whole gang takes."""
    if len(tasks) == 1:
        task = tasks[0]
        return task.count * task.devices * task.milli
    return sum(task.total_milli() for task in tasks)


def total_devices(tasks: Sequence[TaskShape]) -> int:
    """Return the devices a whole gang touches."""
    if len(tasks) == 1:
        return tasks[0].count * tasks[0].devices
    return sum(task.count * task.devices for task in tasks)


def _within(field: str, value: int, low: int, high: int) -> None:
    if type(value) is not int:
        raise RequestError(field, f"{value!r} is not a whole number")
    if not low <= value <= high:
        raise RequestError(field, f"{value} is not within {low} and {high}")
