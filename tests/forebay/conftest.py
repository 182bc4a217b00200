"""A server with a person, a token and a workload, for those who talk to it over HTTP."""

from dataclasses import dataclass
from typing import Any

import pytest
from django.core.cache import cache

from cluster.models import Membership, Team, User
from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.lifecycle import move_job
from tuning.models import Trial, Workload
from web.services.tokens import create_token

SPACE = {"lr": {"type": "loguniform", "low": 0.001, "high": 1.0}}


@dataclass
class ServerInTest:
    """A running server, and the hand of the driver that it does not have."""

    url: str
    token: str
    user: User

    def finish(
        self, job_id: str, state: str = "completed", metric: float | None = 0.9, reason: str = ""
    ) -> None:
        """End a job as its driver would."""
        job = Job.objects.get(pk=job_id)
        if job.state == JobState.QUEUED:
            move_job(job, JobState.RUNNING)
        best = None if metric is None else {"trial": 1, "metric": metric, "config": {"lr": 0.1}}
        job.summary = {"best": best, "trials_total": 3, "trials_ended": 3}
        job.save(update_fields=["summary"])
        for number in range(3):
            Trial.objects.create(job=job, number=number, config={"lr": 0.1 * number}, metric=metric)
        move_job(job, JobState(state), reason=reason)

    def new_token(self, **options: Any) -> str:
        """Create another token."""
        wanted = {"name": "other", "scopes": ["read"], **options}
        return create_token(user=self.user, actor="ada", **wanted).text


@pytest.fixture
def server(live_server, monkeypatch, tmp_path) -> ServerInTest:
    """Start the server; nothing on this machine tells the command line of another one."""
    cache.clear()
    for name in ("FOREBAY_URL", "FOREBAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FOREBAY_DATA", str(tmp_path / "data"))
    user = User.objects.create(username="ada")
    team = Team.objects.create(slug="demo", name="Demo")
    Membership.objects.create(team=team, user=user, role="admin")
    description = {"space": SPACE, "metric": "accuracy", "mode": "max", "epochs": 4}
    Workload.objects.create(name="tiny", description=description)
    made = create_token(user=user, actor="ada", name="test", scopes=["read", "submit", "operate", "admin"])
    return ServerInTest(live_server.url, made.text, user)
