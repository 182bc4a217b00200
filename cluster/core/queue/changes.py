"""What a decision changes, job by job: who gets, keeps, leaves and waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cluster.core.decision.outcome import Decision, Wait
from cluster.core.decision.reasons import Reason
from cluster.core.decision.state import Slice
from cluster.core.queue.units import Held, Units, job_of
from cluster.core.states import AllotmentState, EntryState

# Causes for which nobody is to blame: they do not count as evictions.
BY_PEOPLE = {"drain", "node_lost"}


@dataclass(slots=True)
class Changes:
    """What to write down.

    Attributes:
        started: jobs that run from now on.
        stopped: jobs that have to save their state and leave, with the cause.
        given: (job, slice) to add as held.
        kept: (job, slice) to add as kept.
        taken_up: rows that were kept and are held now.
        leaving: rows to be given back.
        dropped: rows that were kept and are not any more.
        resized: (row, thousandths) of jobs that share their devices from now on, or do not any more.
        waits: for every job that waits, its reason with places counted in jobs.
        order: waiting jobs in the order in which they were considered.
    """

    started: list[str] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)
    given: list[tuple[str, Slice]] = field(default_factory=list)
    kept: list[tuple[str, Slice]] = field(default_factory=list)
    taken_up: list[int] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    resized: list[tuple[int, int]] = field(default_factory=list)
    waits: dict[str, Wait] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Whether anything but the reasons changes."""
        rows = (self.given, self.kept, self.taken_up, self.leaving, self.resized)
        return bool(self.started or self.stopped) or any(rows)


def changes_of(units: Units, decision: Decision) -> Changes:
    """Return what a decision on these units changes."""
    changes = Changes()
    _stop(units, decision, changes)
    _start(units, decision, changes)
    for entry in decision.resized:
        changes.resized += [(row.row, entry.milli) for row in units.rows_of[entry.job_id]]
    _wait(units, decision, changes)
    return changes


def _stop(units: Units, decision: Decision, changes: Changes) -> None:
    told: dict[str, dict[int, str]] = {}  # job -> row -> cause
    for preemption in decision.preemptions:
        rows = units.rows_of[preemption.job_id]
        job_id = units.entry_of[preemption.job_id].job_id
        told.setdefault(job_id, {}).update({row.row: preemption.cause for row in rows})
        if not rows:  # a running job without devices
            changes.stopped[job_id] = preemption.cause
    for entry in units.entry_of.values():
        causes = told.pop(entry.job_id, {})
        changes.leaving += causes
        held = [row.row for row in entry.held if row.state is AllotmentState.HELD]
        if causes and set(held) <= set(causes):
            changes.stopped[entry.job_id] = min(
                set(causes.values()) - BY_PEOPLE, default=min(causes.values())
            )


def _start(units: Units, decision: Decision, changes: Changes) -> None:
    for start in decision.starts:
        entry = units.entry_of[start.job_id]
        rows = units.rows_of[start.job_id]
        kept = [row for row in rows if row.state is AllotmentState.KEPT]
        if start.after:
            changes.dropped += [row.row for row in kept]
            changes.kept += [(entry.job_id, piece) for piece in start.slices]
            continue
        if kept and _same(kept, start.slices):
            changes.taken_up += [row.row for row in kept]
        else:
            changes.dropped += [row.row for row in kept]
            changes.given += [(entry.job_id, piece) for piece in start.slices]
        if entry.state is EntryState.WAITING:
            changes.started.append(entry.job_id)


def _same(rows: list[Held], slices: tuple[Slice, ...]) -> bool:
    def key(piece: Slice) -> tuple[str, int, int, int]:
        return piece.node, piece.device, piece.task, piece.milli

    return sorted(map(key, (row.slice for row in rows))) == sorted(map(key, slices))


def _wait(units: Units, decision: Decision, changes: Changes) -> None:
    """Count places in jobs, since only the first unit of a job stands in line."""
    in_line: dict[str, int] = {}
    promised = {start.job_id for start in decision.starts if start.after}
    for unit_id in decision.order:
        entry = units.entry_of[unit_id]
        if entry.state is not EntryState.WAITING:
            _drop_stale(units, unit_id, decision, changes)
            continue
        changes.order.append(entry.job_id)
        wait = decision.waits.get(unit_id)
        if wait is None:
            if unit_id in promised:
                changes.waits[entry.job_id] = _promised(entry.job_id)
            continue
        _drop_stale(units, unit_id, decision, changes)
        if wait.position is not None:
            in_line[entry.job_id] = len(in_line) + 1
        changes.waits[entry.job_id] = wait
    _recount(changes, in_line)


def _drop_stale(units: Units, unit_id: str, decision: Decision, changes: Changes) -> None:
    wait = decision.waits.get(unit_id)
    if wait is not None and wait.reason != Reason.PREEMPTING:
        changes.dropped += [row.row for row in units.rows_of[unit_id] if row.state is AllotmentState.KEPT]


def _promised(job_id: str) -> Wait:
    return Wait(
        job_id=job_id,
        reason=Reason.PREEMPTING.value,
        message="devices are being freed for it",
        next_step="Nothing: it starts as soon as the stopped jobs have saved their state.",
        numbers={},
        position=None,
        ahead=(),
        behind="",
        predicted_start_s=None,
        earliest_start_s=None,
        latest_start_s=None,
    )


def _recount(changes: Changes, in_line: Mapping[str, int]) -> None:
    for job_id, wait in changes.waits.items():
        ahead = tuple(dict.fromkeys(name for unit in wait.ahead if (name := job_of(unit)) in in_line))
        changes.waits[job_id] = replace(
            wait,
            job_id=job_id,
            position=in_line.get(job_id),
            ahead=tuple(name for name in ahead if name != job_id),
            behind=job_of(wait.behind),
            message=_without_names(wait),
        )


def _without_names(wait: Wait) -> str:
    """Return the sentence for everybody: whose job is ahead concerns only those who may see it."""
    return wait.message.replace(f"job {wait.behind}", "another job") if wait.behind else wait.message
