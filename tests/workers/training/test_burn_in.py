"""The micro-benchmark of suspects, and what the recovery worker makes of it."""

import os

import pytest

from cluster.models import Device
from cluster.services.devices import FoundDevice, FoundNode, record_discovery
from jobs.services.reconfigurations import RECOVERY_QUEUE
from journal.models import OutboxMessage
from telemetry.models import BurnIn
from telemetry.services.quarantine import suspect_device
from workers.training import burn_in as benchmark
from workers.training import recovery


@pytest.fixture
def suspects(db):
    """A suspect core that is there, and one that is not."""
    here = min(os.sched_getaffinity(0))
    devices = (FoundDevice(here, "cpu"), FoundDevice(100_000, "cpu"))
    record_discovery([FoundNode("n0", "127.0.0.1", 2, 1 << 30, devices)])
    rows = list(Device.objects.order_by("index"))
    for row in rows:
        suspect_device(device_id=row.pk, reason="slow")
    return rows


def test_a_core_is_measured_in_a_process_of_its_own(monkeypatch):
    core = min(os.sched_getaffinity(0))
    found = benchmark.measure_apart("cpu", core, [])
    assert found["factor"] >= 1.0  # without a neighbour it is held against its own best
    assert len(found["seconds"][str(core)]) == found["rounds"]


def test_a_suspect_is_rung_for_and_one_that_cannot_be_measured_stays_out(suspects):
    recovery.watch()
    rung = OutboxMessage.objects.filter(task="recovery.burn_in", queue=RECOVERY_QUEUE)
    assert {message.args[0] for message in rung} == {str(row.pk) for row in suspects}
    recovery.burn_in(suspects[1].pk)
    row = BurnIn.objects.get()
    assert (row.state, row.factor) == ("failed", None)
    assert "Error" in row.detail["error"]
    suspects[1].refresh_from_db()
    assert suspects[1].state == "suspect"
