"""An overlap job in the queue: it needs no device, so the next tick rings for its worker."""

import pytest

from cluster.core.roles import Role
from jobs.core.body import parse_body
from jobs.services.coordination import coordinate
from jobs.services.submission import submit_job
from journal.models import OutboxMessage

pytestmark = pytest.mark.django_db


def test_a_tick_rings_for_the_worker_of_a_job_without_devices(demo):
    ada = demo.person("ada")
    demo.team_with(ada, Role.RESEARCHER)
    body = parse_body({"kind": "overlap", "spec": {"program": "tp-transformer"}})
    job = submit_job(body=body, team=ada.teams.get(), owner=ada, actor="ada")
    assert job.name == "tp-transformer"
    coordinate()
    job.refresh_from_db()
    assert job.woken_at is not None
    assert OutboxMessage.objects.filter(task="overlap.run", args=[str(job.pk)]).count() == 1
