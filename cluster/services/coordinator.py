"""One tick of a queue: read its state, decide with the pure policies, write down what changes.

Everything happens in one short transaction under an advisory lock, so two ticks never decide on the same
state, and a coordinator that dies halfway has decided nothing. The epoch grows with every tick.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from cluster.core.decision import ClusterState, Decision, decide, state_from_record, state_record
from cluster.core.policies import live_policy
from cluster.core.queue import Changes, changes_of
from cluster.core.states import AllotmentState, ClusterName, EntryState
from cluster.models import Allotment, Coordinator, DecisionRecord, QueueEntry
from cluster.services.accounting import charge
from cluster.services.live_state import LiveState, lock_entries, moment, read_live
from cluster.services.progress import clock_speed, settle_all
from cluster.services.queue import coordinator_of

LOCK_CLASS = 0x466F7265  # "Fore": apart from anybody else's advisory locks
MOST_ROUNDS = 3  # an elastic job starts with one device in one round and grows in the next
RECHECK_S = 5.0  # how often an unchanged queue is decided on again: predictions move with time
CHARGE_S = 15.0
RECORDS_KEPT = 2000
# A predicted start is written again where it has moved by this much, or by a part of the wait.
PREDICTION_STEP_S, PREDICTION_STEP = 2.0, 0.05


@dataclass(frozen=True)
class Ticked:
    """What a tick changed: jobs that run from now on, and jobs that have to stop, with the cause."""

    epoch: int
    started: tuple[UUID, ...] = ()
    stopped: Mapping[UUID, str] | None = None
    decided: bool = True


def tick(name: ClusterName, *, now: datetime | None = None) -> Ticked | None:
    """Decide once on a queue; None where another tick is at it."""
    coordinator_of(name)
    with transaction.atomic():
        if not _lock(name):
            return None
        row = Coordinator.objects.select_for_update().get(pk=name)
        row.epoch += 1
        ticked = _tick(row, now or timezone.now())
        row.save()
    return ticked


def _lock(name: ClusterName) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [LOCK_CLASS, name])
        return bool(cursor.fetchone()[0])


def _tick(row: Coordinator, now: datetime) -> Ticked:
    lock_entries(ClusterName(row.name))
    _charge_all(row, now)
    live = read_live(row, now)
    digest = _digest(row, live)
    if digest == row.digest and not _is_due(row, live, now):
        return Ticked(row.epoch, decided=False)
    started: list[UUID] = []
    stopped: dict[UUID, str] = {}
    for _ in range(MOST_ROUNDS):
        decision = decide(live.state, live_policy(row.policy, max(1, live.fleet.devices)), live.now_s)
        changes = changes_of(live.units, decision)
        _write(row, live, changes, decision, now)
        started += [UUID(job) for job in changes.started]
        stopped |= {UUID(job): cause for job, cause in changes.stopped.items()}
        if not changes.moves:
            break
        live = read_live(row, now)
    row.digest, row.decided_at, row.devices = _digest(row, live), now, dict(decision.devices)
    return Ticked(row.epoch, tuple(started), stopped)


def _is_due(row: Coordinator, live: LiveState, now: datetime) -> bool:
    """Whether time alone can change the answer: somebody waits, and the last look is a while ago."""
    if row.decided_at is None or row.decided_at > now:
        return True
    waits = any(entry.state is EntryState.WAITING for entry in live.entries)
    return waits and (now - row.decided_at).total_seconds() * live.clock.speed >= RECHECK_S


def _digest(row: Coordinator, live: LiveState) -> str:
    """Return a digest of everything a decision depends on but the time and what fades with it."""
    state = live.state
    parts = (
        live.entries,
        state.nodes,
        state.teams,
        state.reservations,
        state.settings,
        state.queue_held,
        row.policy,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _charge_all(row: Coordinator, now: datetime) -> None:
    if row.charged_at is not None and timedelta(0) <= now - row.charged_at < timedelta(seconds=CHARGE_S):
        return
    simulated = row.name == ClusterName.REHEARSAL
    charge(Allotment.objects.filter(entry__is_simulated=simulated), now, is_simulated=simulated)
    row.charged_at = now


def _write(row: Coordinator, live: LiveState, changes: Changes, decision: Decision, now: datetime) -> None:
    _write_allotments(live, changes, now)
    QueueEntry.objects.filter(pk__in=changes.started).update(
        state=EntryState.RUNNING, started_at=now, done_at=now, position=None, reason="", message="", wait={},
        predicted_start_at=None, earliest_start_at=None, latest_start_at=None,
    )  # fmt: skip
    for job_id, cause in changes.stopped.items():
        _write_stop(job_id, cause)
    _write_waits(live, changes)
    if changes.moves:
        _record(row, live, decision, now)


def _write_allotments(live: LiveState, changes: Changes, now: datetime) -> None:
    _count_work(live, changes, now)
    _resize(changes, now)
    Allotment.objects.filter(pk__in=changes.dropped).delete()
    Allotment.objects.filter(pk__in=changes.leaving).update(state=AllotmentState.LEAVING)
    Allotment.objects.filter(pk__in=changes.taken_up).update(
        state=AllotmentState.HELD, since=now, charged_at=now
    )
    new = [(AllotmentState.HELD, entry) for entry in changes.given]
    new += [(AllotmentState.KEPT, entry) for entry in changes.kept]
    Allotment.objects.bulk_create(
        Allotment(
            entry_id=UUID(job_id),
            device_id=live.fleet.device_at[piece.node, piece.device],
            milli=piece.milli,
            task=piece.task,
            state=state,
            since=now,
            charged_at=now,
        )
        for state, (job_id, piece) in new
    )


def _count_work(live: LiveState, changes: Changes, now: datetime) -> None:
    """Count what jobs have done that go on with other devices than before."""
    rows = {row for row, _ in changes.resized} | set(changes.taken_up)
    grown = {job for job, _ in changes.given}
    changed = [
        entry.job_id
        for entry in live.entries
        if entry.state is EntryState.RUNNING
        and (entry.job_id in grown or not rows.isdisjoint(held.row for held in entry.held))
    ]
    if changed:
        settle_all(changed, now, speed=live.clock.speed)


def _resize(changes: Changes, now: datetime) -> None:
    """Let jobs share their devices from now on, or have them alone again; first charge what they used."""
    sizes = dict(changes.resized)
    for entry in QueueEntry.objects.filter(allotments__in=sizes).distinct():
        rows = entry.allotments.filter(pk__in=sizes)
        charge(rows, now, is_simulated=entry.is_simulated)
        speed = clock_speed(is_simulated=entry.is_simulated)
        for row in rows:
            seconds = max(0.0, (now - row.since).total_seconds()) * speed
            entry.attained_device_s += seconds * row.milli / 1000
            row.milli, row.since = sizes[row.pk], now
            row.save(update_fields=["milli", "since"])
        entry.save(update_fields=["attained_device_s"])


def _write_stop(job_id: str, cause: str) -> None:
    entry = QueueEntry.objects.get(pk=job_id)
    if cause not in ("drain", "node_lost"):
        entry.evictions += 1
    entry.state, entry.reason = EntryState.STOPPING, cause
    entry.message = STOP_WORDS.get(cause, cause)
    entry.save(update_fields=["state", "evictions", "reason", "message"])


STOP_WORDS = {
    "class": "a job of a higher class needs its devices",
    "guarantee": "it runs on borrowed devices that their team needs now",
    "policy": "the policy prefers another job",
    "reservation": "it runs on devices of a reservation",
    "deadline": "a job whose deadline was promised needs its devices",
    "drain": "its devices are being drained",
    "node_lost": "its devices are gone",
}

UPDATE_WAITS = """
UPDATE cluster_queueentry AS entry
SET rank = new.rank, position = new.position, reason = new.reason, message = new.message, wait = new.wait,
    predicted_start_at = new.predicted, earliest_start_at = new.earliest, latest_start_at = new.latest
FROM jsonb_to_recordset(%s::jsonb) AS new(
    job_id uuid, rank bigint, position integer, reason text, message text, wait jsonb,
    predicted timestamptz, earliest timestamptz, latest timestamptz)
WHERE entry.job_id = new.job_id
"""


def _write_waits(live: LiveState, changes: Changes) -> None:
    """Write the reasons that have changed; most stay the same from tick to tick."""
    fields = ("rank", "position", "reason", "message", "wait")
    times = ("predicted_start_at", "earliest_start_at", "latest_start_at")
    before = {
        str(row.pop("job_id")): row
        for row in QueueEntry.objects.filter(pk__in=changes.waits).values("job_id", *fields, *times)
    }
    ranks = {job_id: rank for rank, job_id in enumerate(changes.order, start=1)}
    news = []
    for job_id, wait in changes.waits.items():
        facts = {
            "next_step": wait.next_step,
            "numbers": dict(wait.numbers),
            "ahead": list(wait.ahead),
            "behind": wait.behind,
        }
        values = (ranks[job_id], wait.position, wait.reason, wait.message[:500], facts)
        starts = [
            None if at is None else moment(live.clock.wall_s(at))
            for at in (wait.predicted_start_s, wait.earliest_start_s, wait.latest_start_s)
        ]
        old = before[job_id]
        same = values == tuple(old[name] for name in fields)
        if same and not any(_moved(old[name], at) for name, at in zip(times, starts, strict=True)):
            continue
        shown = [at.isoformat() if at else None for at in starts]
        names = ("job_id", *fields, "predicted", "earliest", "latest")
        news.append(dict(zip(names, (job_id, *values, *shown), strict=True)))
    if news:
        with connection.cursor() as cursor:
            cursor.execute(UPDATE_WAITS, [json.dumps(news)])


def _moved(old: datetime | None, new: datetime | None) -> bool:
    if old is None or new is None:
        return old is not new
    ahead_s = abs((new - timezone.now()).total_seconds())
    return abs((new - old).total_seconds()) > max(PREDICTION_STEP_S, PREDICTION_STEP * ahead_s)


def _record(row: Coordinator, live: LiveState, decision: Decision, now: datetime) -> None:
    DecisionRecord.objects.create(
        cluster=row.name,
        epoch=row.epoch,
        at=now,
        now_s=live.now_s,
        policy=row.policy,
        state=_packed(state_record(live.state)),
        outcome=_packed(decision.record()),
        starts=len(decision.starts),
        preemptions=len(decision.preemptions),
        waiting=len(decision.waits),
    )
    newest = DecisionRecord.objects.filter(cluster=row.name).order_by("-id").values_list("id", flat=True)
    oldest_kept = newest[RECORDS_KEPT : RECORDS_KEPT + 1].first()
    if oldest_kept is not None:
        DecisionRecord.objects.filter(cluster=row.name, id__lte=oldest_kept).delete()


def _packed(document: Any) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)


def unpacked(data: bytes | memoryview) -> Any:
    """Return the JSON document of a decision record's field."""
    return json.loads(zlib.decompress(bytes(data)))


def decide_again(record: DecisionRecord) -> bool:
    """Whether the state that was written down gives the decision that was written down."""
    state: ClusterState = state_from_record(unpacked(record.state))
    devices = sum(node.devices for node in state.nodes)
    again = decide(state, live_policy(record.policy, max(1, devices)), record.now_s)
    # What a decision says today, and what it said before it could let jobs share devices.
    return bool(json.loads(json.dumps(again.record())) == {"resized": [], **unpacked(record.outcome)})
