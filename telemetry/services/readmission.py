"""Ranks that a job left out come back: looked at again once nothing is known against them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.utils import timezone

from cluster.core.states import DeviceState
from cluster.models import Device
from jobs.core.states import PENDING, FaultMode, JobState
from jobs.models import Injection, Reconfiguration, TrainingRun
from telemetry.core.states import FAULTS, VerdictKind, VerdictState
from telemetry.models import Verdict
from telemetry.services.recovery import plan_for, propose_plan

log = structlog.get_logger(__name__)
SLOW = [VerdictKind.DEVICE_FAIL_SLOW.value, VerdictKind.INTERMITTENT.value]
FLAPS, FLAPPING_WITHIN = 3, timedelta(hours=1)


def readmit(device_id: UUID) -> list[Reconfiguration]:
    """Have running jobs that left a device out look at it again; it is as fast as its peers now."""
    runs = TrainingRun.objects.filter(job__state=JobState.RUNNING).select_related("job")
    return _offers(run for run in runs if any(row["id"] == str(device_id) for row in run.devices))


def readmit_idle() -> list[Reconfiguration]:
    """Have running jobs look at ranks that live, have nothing to do, and are not known to be slow now."""
    return _offers(TrainingRun.objects.filter(job__state=JobState.RUNNING).select_related("job"))


def _offers(runs: Iterable[TrainingRun]) -> list[Reconfiguration]:
    found = []
    for run in runs:
        ranks = returning_ranks(run, timezone.now())
        if ranks and (row := _offer(run, ranks)):
            found.append(row)
    return found


def returning_ranks(run: TrainingRun, now: datetime) -> set[int]:
    """Return the idle ranks of a run against which nothing is known any more.

    Each is looked at once in a layout: what was turned down is not offered again. Nothing is planned before
    the layout has been measured.
    """
    measured = len(run.costs.get("ranks", {})) > 0 and run.iteration_s is not None
    idle = {int(name[1:]) for name in run.layout.get("idle", [])}
    living = {row["rank"] for row in run.health if row.get("state") == "idle"}
    ranks = idle & living if measured else set()
    offered = run.facts.get("offered") or {}
    if ranks and offered.get("epoch") == run.epoch and ranks <= set(offered.get("ranks", ())):
        return set()
    slow = {int(rank) for rank in run.facts.get("speeds", {})}
    suffering = _suffering(run, now) if ranks else set()
    return {rank for rank in ranks - suffering if rank not in slow or _is_sound(run, rank, now)}


def _is_sound(run: TrainingRun, rank: int, now: datetime) -> bool:
    """Whether a rank that was slow is on a device that is back in service, and has not flapped lately.

    That it is fine now is what flapping means.
    """
    device_id = str(run.devices[rank]["id"])
    if not Device.objects.filter(pk=device_id, state=DeviceState.HEALTHY).exists():
        return False
    since = now - FLAPPING_WITHIN
    return Verdict.objects.filter(device_id=device_id, opened_at__gte=since, kind__in=SLOW).count() < FLAPS


def _suffering(run: TrainingRun, now: datetime) -> set[int]:
    """Return the ranks whose process still suffers from an injected fault, however sound their device is."""
    began = run.facts.get("returned", {})
    found: set[int] = set()
    for row in Injection.objects.filter(run=run, applied_at__isnull=False).order_by("applied_at", "id"):
        since = began.get(str(row.rank)) or run.facts.get("since")
        # A process that was started after the fault knows nothing of it; of several the last one counts.
        at = row.applied_at or now
        if since is None or at > datetime.fromisoformat(since):
            found = found | {row.rank} if _lasts(row, now) else found - {row.rank}
    return found


def _lasts(row: Injection, now: datetime) -> bool:
    if row.factor <= 1:  # the way to end a slowdown
        return False
    if row.mode == FaultMode.SLOW and row.seconds is not None and row.applied_at is not None:
        return row.applied_at + timedelta(seconds=row.seconds) > now
    return row.mode in (FaultMode.SLOW, FaultMode.FLAP)


def _offer(run: TrainingRun, ranks: set[int]) -> Reconfiguration | None:
    """Propose a layout that uses these ranks again, if one is better than the present one."""
    pending = Reconfiguration.objects.filter(job=run.job, state__in=PENDING).exists()
    incident = Verdict.objects.filter(job=run.job, state=VerdictState.OPEN, kind__in=sorted(FAULTS)).exists()
    if pending or incident:
        return None
    speeds = {rank: speed for rank, speed in run.facts.get("speeds", {}).items() if int(rank) not in ranks}
    run.facts = {**run.facts, "speeds": speeds, "offered": {"epoch": run.epoch, "ranks": sorted(ranks)}}
    TrainingRun.objects.filter(pk=run.pk).update(facts=run.facts)
    proposal, note = plan_for(None, run.job, run)
    if proposal is None:
        log.info("recovery.not_readmitted", job=str(run.pk), reason=note)
        return None
    return propose_plan(None, run.job, proposal)
