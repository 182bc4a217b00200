"""What the recovery worker does: answer incidents, close plans whose time is over, measure suspects."""

import subprocess
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone

from cluster.models import Device
from jobs.models import Reconfiguration
from jobs.services.reconfigurations import RECOVERY_QUEUE, expire_due
from jobs.services.training import wake
from journal.services import ring
from telemetry.core.states import BurnInState
from telemetry.services.quarantine import begin_burn_in, due_for_burn_in, end_burn_in
from telemetry.services.readmission import readmit, readmit_idle
from telemetry.services.recovery import answer_verdict, unanswered
from workers.training.burn_in import LIMIT_S, measure, measure_apart

log = structlog.get_logger(__name__)
BURN_IN = "recovery.burn_in"


def watch() -> None:
    """Look for what a lost message left behind, for plans whose time is over, and for suspects to measure."""
    expire_due()
    for verdict_id in unanswered():
        answer_verdict(verdict_id)
    readmit_idle()
    for device in due_for_burn_in(timezone.now()):
        ring(BURN_IN, queue=RECOVERY_QUEUE, args=[str(device.pk)])


def execute(reconfiguration_id: UUID) -> None:
    """See to it that the job of an approved plan has a driver, who begins it within a moment."""
    row = Reconfiguration.objects.select_related("job").filter(pk=reconfiguration_id).first()
    if row is not None:
        wake(row.job)


def burn_in(device_id: UUID) -> None:
    """Measure a suspect; one as fast as its neighbours is used again, also by the job it was taken from."""
    row = begin_burn_in(device_id=device_id)
    if row is None:
        return
    device = Device.objects.select_related("node").get(pk=device_id)
    others = Device.objects.filter(node=device.node, kind=device.kind).exclude(pk=device.pk)
    neighbours = list(others.order_by("index").values_list("index", flat=True))
    try:
        found = _measured(device, neighbours)
    except Exception as error:  # whatever went wrong, the device was not found to be sound
        log.warning("burn_in.failed", device=str(device), error=str(error))
        found = {"factor": None, "error": f"{type(error).__name__}: {error}"[:500]}
    ended = end_burn_in(burn_in_id=row.pk, factor=found.pop("factor"), detail=found)
    if ended.state == BurnInState.PASSED:
        readmit(device_id)


def _measured(device: Device, neighbours: list[int]) -> dict[str, Any]:
    node_id = device.node.facts.get("ray_node_id")
    if not settings.RAY_ADDRESS or not node_id:
        try:
            return measure_apart(device.kind, device.index, neighbours)
        except subprocess.TimeoutExpired:
            return {"factor": None, "error": f"it did not end within {LIMIT_S} s"}
    from workers.ray_cluster import connect, ray

    connect()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    remote: Any = ray.remote(measure).options(num_cpus=0, scheduling_strategy=there, max_retries=0)
    found: dict[str, Any] = ray.get(remote.remote(device.kind, device.index, neighbours), timeout=LIMIT_S)
    return found
