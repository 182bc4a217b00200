"""Suspect devices: kept from new work, measured alone, and used again or kept out."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster.core.states import DeviceState
from cluster.models import Device
from cluster.services.devices import move_device
from journal.services import Fact, record
from telemetry.core.states import FAULTS, BurnInState, VerdictState
from telemetry.models import BurnIn, Verdict

ACTOR = "recovery loop"
# A device this much slower than its peers stays out (the largest slowdown that the detector ignores).
PASSES_BELOW = 1.10
# A device that failed is looked at again after a while that doubles with every failure in a row.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=1)
# A burn-in whose process died is forgotten after this.
GIVEN_UP = timedelta(minutes=5)


@transaction.atomic
def suspect_device(*, device_id: UUID, reason: str) -> bool:
    """Keep new work off a device; return whether it was in service until now."""
    device = Device.objects.select_for_update().get(pk=device_id)
    if device.state != DeviceState.HEALTHY:
        return False
    move_device(device_id=device_id, to=DeviceState.SUSPECT, actor=ACTOR, reason=reason[:300])
    return True


def due_for_burn_in(now: datetime) -> list[Device]:
    """Return suspects on which no incident is open and whose time to be measured has come."""
    incidents = Verdict.objects.filter(state=VerdictState.OPEN, device__isnull=False, kind__in=sorted(FAULTS))
    open_on = incidents.values("device_id")
    BurnIn.objects.filter(state=BurnInState.RUNNING, started_at__lt=now - GIVEN_UP).delete()
    suspects = Device.objects.filter(state=DeviceState.SUSPECT, node__is_simulated=False)
    rows = suspects.exclude(pk__in=open_on).select_related("node")
    return [device for device in rows if _is_due(device, now)]


def _is_due(device: Device, now: datetime) -> bool:
    failures = 0
    for state, ended_at in device.burn_ins.values_list("state", "ended_at")[:12]:
        if state == BurnInState.RUNNING:
            return False
        if state == BurnInState.PASSED:
            break
        if failures == 0:
            last = ended_at
        failures += 1
    return failures == 0 or last is None or now - last >= pause_after(failures)


def pause_after(failures: int) -> timedelta:
    """Return how long a device rests after so many failed burn-ins in a row."""
    return min(FIRST_PAUSE * 2.0 ** (failures - 1), LONGEST_PAUSE)


@transaction.atomic
def begin_burn_in(*, device_id: UUID) -> BurnIn | None:
    """Begin to measure a suspect; None if it is being measured or is no suspect any more."""
    device = Device.objects.select_for_update().get(pk=device_id)
    running = BurnIn.objects.filter(device=device, state=BurnInState.RUNNING).exists()
    if running or device.state != DeviceState.SUSPECT:
        return None
    verdict = Verdict.objects.filter(device=device).order_by("-opened_at").first()
    return BurnIn.objects.create(device=device, verdict=verdict)


@transaction.atomic
def end_burn_in(*, burn_in_id: UUID, factor: float | None, detail: dict[str, object]) -> BurnIn:
    """Record what was measured; a device as fast as its peers goes back into service."""
    row = BurnIn.objects.select_for_update().select_related("device__node").get(pk=burn_in_id)
    passed = factor is not None and factor < PASSES_BELOW
    row.state = BurnInState.PASSED if passed else BurnInState.FAILED
    row.factor, row.detail, row.ended_at = factor, detail, timezone.now()
    row.save(update_fields=["state", "factor", "detail", "ended_at"])
    device = Device.objects.select_for_update().get(pk=row.device_id)
    data = {"device": str(device.pk), "label": str(row.device), "state": row.state, "factor": factor}
    record("fleet", [Fact("device.burn_in", data)])
    if passed and device.state == DeviceState.SUSPECT:
        assert factor is not None
        reason = f"burn-in passed: {factor:.2f} times the time of its peers"
        move_device(device_id=device.pk, to=DeviceState.HEALTHY, actor=ACTOR, reason=reason)
    return row
