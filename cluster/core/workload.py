"""Jobs as columns: what every policy reads, in the simulator and live alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]
FloatMatrix = NDArray[np.float64]
IntMatrix = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]

ANY_KIND = -1


@dataclass(slots=True)
class JobTable:
    """J jobs in order of arrival, then row; one array of length J per column.

    Attributes:
        ids: names, unique.
        submit_s, devices: arrival and gang size (all or nothing).
        duration_s: run time on its devices: the true one in a simulation, the believed one live.
        limit_s: declared upper bound of the run time.
        deadline_s: absolute; infinite without one.
        kind: index into `kinds`, or ANY_KIND.
        user, team: indices into `users`, `teams`.
        rank_class: higher goes first.
        fair_rank: rank of the owner in the fair tree, 0 first.
        remaining_s, attained_device_s, executed_s: progress, as of `refreshed_s`.
        waiting_since_s: when the present wait began.
        started_s: when the present run began; NaN while waiting.
        refreshed_s: when the progress columns were last brought up to date, for running jobs.
        level: queue of a multi-level policy, 0 first.
        promoted_device_s: service attained when the job was last promoted.
        running: whether it holds devices.
        workers: devices of each of the T kinds; filled in live only, like all that follow.
        speed: relative speed of each job on each kind (J, T), 0 where it may not run.
        received_s: seconds each job has run on each kind (J, T).
        on_kind: kind each job holds devices of, -1 for none.
        unit: number of a further device of an elastic job, 0 for its first and for gangs.
        job: which rows are devices of the same job.
        speedups: by job code, speed on 1, 2, ... devices; empty where each adds as much as the first.
    """

    ids: list[str]
    submit_s: FloatColumn
    devices: IntColumn
    duration_s: FloatColumn
    limit_s: FloatColumn
    deadline_s: FloatColumn
    kind: IntColumn
    user: IntColumn
    team: IntColumn
    rank_class: IntColumn
    fair_rank: FloatColumn
    remaining_s: FloatColumn
    attained_device_s: FloatColumn
    executed_s: FloatColumn
    waiting_since_s: FloatColumn
    started_s: FloatColumn
    refreshed_s: FloatColumn
    level: IntColumn
    promoted_device_s: FloatColumn
    running: BoolColumn
    kinds: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    teams: list[str] = field(default_factory=list)
    workers: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    speed: FloatMatrix = field(default_factory=lambda: np.zeros((0, 0)))
    received_s: FloatMatrix = field(default_factory=lambda: np.zeros((0, 0)))
    on_kind: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    unit: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    job: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    speedups: list[tuple[float, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


def job_table(
    *,
    ids: Sequence[str],
    submit_s: Sequence[float],
    devices: Sequence[int],
    duration_s: Sequence[float],
    limit_s: Sequence[float] | None = None,
    deadline_s: Sequence[float] | None = None,
    kinds: Sequence[str] | None = None,
    users: Sequence[str] | None = None,
) -> JobTable:
    """Build a table of jobs that have not started, sorted by arrival, then row.

    `deadline_s` is absolute; an empty kind means any.
    """
    order = np.argsort(np.asarray(submit_s, dtype=np.float64), kind="stable")
    submit = np.asarray(submit_s, dtype=np.float64)[order]
    count = len(order)
    duration = np.asarray(duration_s, dtype=np.float64)[order]
    kind_names, kind_of = _codes(kinds, order, empty=ANY_KIND)
    user_names, user_of = _codes(users, order, empty=0)
    limit = duration if limit_s is None else np.asarray(limit_s, dtype=np.float64)[order]
    deadline = np.full(count, np.inf) if deadline_s is None else np.asarray(deadline_s, float)[order]
    return JobTable(
        ids=[ids[row] for row in order],
        submit_s=submit,
        devices=np.asarray(devices, dtype=np.int64)[order],
        duration_s=duration,
        limit_s=limit.copy(),
        deadline_s=deadline,
        kind=kind_of,
        user=user_of,
        team=np.zeros(count, dtype=np.int64),
        rank_class=np.zeros(count, dtype=np.int64),
        fair_rank=np.zeros(count),
        remaining_s=duration.copy(),
        attained_device_s=np.zeros(count),
        executed_s=np.zeros(count),
        waiting_since_s=submit.copy(),
        started_s=np.full(count, np.nan),
        refreshed_s=np.full(count, np.nan),
        level=np.zeros(count, dtype=np.int64),
        promoted_device_s=np.zeros(count),
        running=np.zeros(count, dtype=np.bool_),
        kinds=kind_names,
        users=user_names,
        teams=[""],
    )


def _codes(names: Sequence[str] | None, order: IntColumn, *, empty: int) -> tuple[list[str], IntColumn]:
    """Return the distinct names in order of first use and each row's code."""
    codes = np.full(len(order), empty, dtype=np.int64)
    if names is None:
        return ([] if empty == ANY_KIND else [""]), codes
    known: dict[str, int] = {}
    for position, row in enumerate(order):
        name = names[row]
        if name or empty != ANY_KIND:
            codes[position] = known.setdefault(name, len(known))
    return list(known), codes
