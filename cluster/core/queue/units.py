"""Jobs of the queue as the units that the decision knows.

A gang is one unit. An elastic job is one unit per device: the first stands in the queue like any job, each
further one a step below the one before it. Classes decide among units, so devices fill like water: nobody
gets a second device while somebody who is as important has none, and a further device is given back at once
when it is a first device for somebody else. Where a running job lends the idle moments of its devices, one
elastic job that uses such moments starts at once, and its first device is asked for from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from cluster.core.decision.state import JobView, Slice
from cluster.core.queue.demand import Demand
from cluster.core.requests import TaskShape
from cluster.core.states import AllotmentState, EntryState

CLASS_STEP = 10_000
# How many further devices one elastic job is given by one decision; the next decision goes on.
GROWTH = 8


@dataclass(frozen=True, slots=True)
class Held:
    """What a job has of one device; `row` names it for whoever writes changes down."""

    row: int
    slice: Slice
    state: AllotmentState
    since_s: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A job of the queue with what it holds. Times are the queue's; `started_s` is of the present run.

    Attributes:
        done_s: seconds of its work that were done at `counted_s`, for jobs whose work is known; in a run,
            `pace` more in each second.
        received: (kind, seconds) of earlier runs.
    """

    job_id: str
    team: str
    owner: str
    demand: Demand
    state: EntryState
    submitted_s: float
    started_s: float | None = None
    executed_s: float = 0.0
    attained_device_s: float = 0.0
    evictions: int = 0
    is_held: bool = False
    held: tuple[Held, ...] = ()
    done_s: float = 0.0
    counted_s: float | None = None
    pace: float = 1.0
    received: tuple[tuple[str, float], ...] = ()

    def left_s(self, now: float) -> float | None:
        """Return how long the work that is left takes at the present pace; None where nobody knows."""
        if self.demand.believed_s is None:
            return None
        since = self.started_s if self.counted_s is None else self.counted_s
        more = max(0.0, now - since) * self.pace if since is not None and self.started_s is not None else 0.0
        return max(0.0, self.demand.believed_s - self.done_s - more) / (self.pace or 1.0)


@dataclass(slots=True)
class Units:
    """The views of all jobs, and for each unit its job and what it holds."""

    views: list[JobView] = field(default_factory=list)
    entry_of: dict[str, Entry] = field(default_factory=dict)
    rows_of: dict[str, tuple[Held, ...]] = field(default_factory=dict)

    def add(self, view: JobView, entry: Entry, rows: Sequence[Held] = ()) -> None:
        """Add a unit."""
        self.views.append(view)
        self.entry_of[view.id] = entry
        self.rows_of[view.id] = tuple(rows)


def units_of(entries: Sequence[Entry], now: float) -> Units:
    """Return the units of all jobs, in the jobs' order."""
    units = Units()
    on_loan = _on_loan(entries)
    for entry in entries:
        base = _view(entry, now)
        if entry.demand.elastic:
            _elastic(units, entry, base, on_loan=entry.job_id in on_loan)
        else:
            units.add(_with_rows(base, entry, entry.held), entry, entry.held)
    return units


def _on_loan(entries: Sequence[Entry]) -> set[str]:
    """Return the waiting jobs that start without a device: one for each job that lends, in the jobs' order.

    More would only wait in another place, each with a driver that has nothing to drive.
    """
    running = [entry for entry in entries if entry.state is EntryState.RUNNING]
    taken = sum(entry.demand.borrows and not entry.held for entry in running)
    left = max(0, sum(entry.demand.lends for entry in running) - taken)
    waiting = (
        entry.job_id
        for entry in entries
        if entry.demand.borrows and entry.state is EntryState.WAITING and not entry.is_held and not entry.held
    )
    return set(islice(waiting, left))


def _view(entry: Entry, now: float) -> JobView:
    demand = entry.demand
    left = entry.left_s(now)
    return JobView(
        id=entry.job_id,
        tasks=demand.tasks,
        submitted_s=entry.submitted_s,
        team=entry.team,
        user=entry.owner,
        kinds=demand.kinds,
        job_class=demand.job_class * CLASS_STEP,
        deadline_s=demand.deadline_s,
        limit_s=demand.limit_s,
        expected_s=None if left is None else (left, left, left),
        min_runtime_s=demand.min_runtime_s,
        attained_device_s=entry.attained_device_s,
        executed_s=entry.executed_s,
        evictions=entry.evictions,
        preemptible=demand.preemptible,
        held=entry.is_held,
        pin=demand.pin,
        topology=demand.topology,
        reservation=demand.reservation,
        speeds=demand.speeds,
        received=entry.received,
        speedup=demand.speedup,
        keeps=0.0 if demand.elastic else demand.keeps,
    )


def _with_rows(view: JobView, entry: Entry, rows: Sequence[Held]) -> JobView:
    kept = bool(rows) and rows[0].state is AllotmentState.KEPT
    leaving = entry.state is EntryState.STOPPING or (bool(rows) and rows[0].state is AllotmentState.LEAVING)
    running = entry.state is EntryState.RUNNING and not kept and not leaving
    return replace(
        view,
        running=running,
        stopping=leaving and not kept,
        started_s=entry.started_s if running or leaving else None,
        placement=tuple(row.slice for row in rows),
    )


def _elastic(units: Units, entry: Entry, base: JobView, *, on_loan: bool) -> None:
    demand = entry.demand
    view = replace(base, tasks=(TaskShape(1, 1, demand.tasks[0].milli, demand.tasks[0].memory_bytes),))
    by_state: dict[AllotmentState, list[Held]] = {state: [] for state in AllotmentState}
    for row in sorted(entry.held, key=lambda row: (row.since_s, row.slice.node, row.slice.device)):
        by_state[row.state].append(row)
    number = 0
    for row in by_state[AllotmentState.HELD]:
        units.add(_unit(view, entry, number, [row]), entry, [row])
        number += 1
    for place, row in enumerate(by_state[AllotmentState.LEAVING]):
        leaving = replace(_with_rows(view, entry, [row]), id=f"{entry.job_id}/leaving-{place}")
        units.add(leaving, entry, [row])
    if entry.state is EntryState.STOPPING:
        return
    for row in by_state[AllotmentState.KEPT]:
        units.add(_unit(view, entry, number, [row]), entry, [row])
        number += 1
    if entry.state is EntryState.WAITING:
        if not number:
            units.add(replace(view, tasks=()) if on_loan else view, entry)
        return
    for further in range(number, min(demand.most_units, number + GROWTH)):
        units.add(_unit(view, entry, further, []), entry)


def _unit(view: JobView, entry: Entry, number: int, rows: Sequence[Held]) -> JobView:
    unit = _with_rows(view, entry, rows) if rows else view
    if number == 0:
        return unit
    # A further device may be taken back at any time, so it delays nobody: its limit is nothing.
    return replace(
        unit,
        id=f"{entry.job_id}/{number}",
        job_class=view.job_class - number,
        limit_s=0.0,
        expected_s=None,
        deadline_s=None,
        min_runtime_s=0.0,
        evictions=0,
        started_s=rows[0].since_s if unit.running else None,
        unit=number,
    )


def job_of(unit_id: str) -> str:
    """Return the job a unit belongs to."""
    return unit_id.partition("/")[0]
