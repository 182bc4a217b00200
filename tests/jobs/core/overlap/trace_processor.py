"""What Perfetto's trace processor does with a JSON trace, from the rules of its importer: an oracle.

The program itself runs in a browser and is too slow for properties; `test_perfetto.py` holds this against it.
The rules: times become whole nanoseconds, cut off or rounded; events are sorted by time, slices
before everything else and long ones first, the rest as in the file; slices of one thread nest or follow each
other, what overlaps is dropped; an arrow is tied to the slice that was opened last on its thread and has not
ended before; counters are numbers. Everything that it reports as an import error is in `faults`.
"""

import json
import re
from dataclasses import dataclass, field

_UINT32 = 1 << 32


@dataclass(frozen=True)
class Slice:
    name: str
    category: str
    thread: tuple[int, int]
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass
class Imported:
    """The tables."""

    slices: list[Slice] = field(default_factory=list)
    arrows: list[tuple[Slice, Slice]] = field(default_factory=list)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def import_trace(text: str) -> Imported:
    """Read a trace file."""
    found = Imported()
    events = json.loads(text, parse_float=_Number, parse_constant=lambda name: found.faults.append(name))
    if not isinstance(events, dict) or not isinstance(events.get("traceEvents"), list):
        found.faults.append("traceEvents is not an array")
        return found
    timed = []
    for place, event in enumerate(events["traceEvents"]):
        if not all(0 <= int(event.get(key, 0)) < _UINT32 for key in ("pid", "tid")):
            found.faults.append(f"event {place}: pid or tid")
        if event["ph"] == "M":
            _metadata(found, event)
        elif "ts" not in event or (event["ph"] == "X" and "dur" not in event):
            found.faults.append(f"event {place}: no time")
        else:
            # Long slices first, then everything that is no slice; of equal ones the first in the file.
            long_first = -_ns(found, event["dur"]) if event["ph"] == "X" else 1
            timed.append((_ns(found, event["ts"]), long_first, place, event))
    _play(found, sorted(timed, key=lambda one: one[:3]))
    return found


class _Number(float):
    """A float that knows how it was written."""

    def __new__(cls, text: str) -> "_Number":
        made = super().__new__(cls, text)
        made.text = text
        return made


def _ns(found: Imported, value: float) -> int:
    """Microseconds as nanoseconds: by digits, cut off, and rounded; versions differ, times must not."""
    text = getattr(value, "text", str(value))
    digits = re.fullmatch(r"(-?\d+)(?:\.(\d+))?", text)
    if digits is None:
        found.faults.append(f"time {text} is no decimal number")
        return round(value * 1000)
    by_digits = int(digits[1]) * 1000 + int((digits[2] or "")[:3].ljust(3, "0"))
    if not by_digits == int(value * 1000) == round(value * 1000):
        found.faults.append(f"time {text} is {by_digits}, {int(value * 1000)} or {round(value * 1000)} ns")
    if by_digits < 0:
        found.faults.append(f"time {text} is negative")
    return by_digits


def _metadata(found: Imported, event: dict) -> None:
    name = event["args"]["name"]
    if event["name"] == "process_name":
        found.processes[event["pid"]] = name
    elif event["name"] == "thread_name":
        found.threads[event["pid"], event["tid"]] = name


def _play(found: Imported, timed: list[tuple[int, int, int, dict]]) -> None:
    stacks: dict[tuple[int, int], list[Slice]] = {}
    leaving: dict[tuple[object, str, str], Slice] = {}
    for ts, _, place, event in timed:
        stack = stacks.setdefault((event["pid"], event.get("tid", event["pid"])), [])
        if event["ph"] == "X":
            _open(found, stack, event, ts, _ns(found, event["dur"]))
        elif event["ph"] == "C":
            for series, value in event["args"].items():
                if isinstance(value, bool) or not isinstance(value, int | float):
                    found.faults.append(f"event {place}: counter {series} is no number")
                found.counters.setdefault(f"{event['name']} {series}", []).append((ts, value))
        elif event["ph"] in ("s", "f"):
            arrow = (event["id"], event["cat"], event["name"])
            if not stack:
                found.faults.append(f"event {place}: no slice for the arrow {arrow}")
            elif event["ph"] == "f":
                if event.get("bp") != "e" or arrow not in leaving:
                    found.faults.append(f"event {place}: arrow {arrow} ends without having begun")
                else:
                    found.arrows.append((leaving[arrow], stack[-1]))
            elif arrow in leaving:
                found.faults.append(f"event {place}: arrow {arrow} begins twice")
            else:
                leaving[arrow] = stack[-1]
        else:
            found.faults.append(f"event {place}: phase {event['ph']}")


def _open(found: Imported, stack: list[Slice], event: dict, ts: int, duration: int) -> None:
    made = Slice(event["name"], event["cat"], (event["pid"], event["tid"]), ts, duration)
    while stack:
        last = stack[-1]
        instants = last.duration_ns == 0 and duration == 0
        if last.end_ns < ts or (last.end_ns == ts and not instants):
            stack.pop()
            continue
        if ts < last.end_ns < made.end_ns:
            found.faults.append(f"slice {made.name} overlaps {last.name} and is dropped")
            return
        break
    stack.append(made)
    found.slices.append(made)
