"""Decisions that are made at the same moment: one counts."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from jobs.core.errors import JobError
from jobs.models import Reconfiguration
from jobs.services import reconfigurations
from journal.models import AuditEntry, OutboxMessage
from journal.queries import events_after

THREADS = 6


@pytest.mark.django_db(transaction=True)
def test_of_many_approvals_and_rejections_at_once_exactly_one_counts(
    job, proposal, people, broker_at, tmp_path
):
    # A broker that takes the message would empty the outbox.
    broker_at(f"redis+socket://{tmp_path}/no-broker.sock")
    row = reconfigurations.propose(job_id=job.pk, proposal=proposal(), by_policy=False)
    together = threading.Barrier(THREADS)

    def decide(number: int) -> bool:
        act = reconfigurations.approve if number % 2 else reconfigurations.reject
        try:
            together.wait()
            act(reconfiguration_id=row.pk, approver=people["grace"], actor="grace", seen_version=1)
        except JobError:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        counted = list(pool.map(decide, range(THREADS)))
    assert counted.count(True) == 1
    row = Reconfiguration.objects.get()
    assert (row.state in ("approved", "rejected"), row.version) == (True, 2)
    assert len(events_after(job.stream, 0)) == 2
    decisions = AuditEntry.objects.filter(action__in=["reconfiguration.approve", "reconfiguration.reject"])
    assert decisions.count() == 1
    assert OutboxMessage.objects.filter(task="recovery.execute").count() == (row.state == "approved")
