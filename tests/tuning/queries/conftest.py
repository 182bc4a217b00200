"""A study with trials of every state, some values missing."""

import random

import pytest

from cluster.models import Team, User
from jobs.models import Job
from tuning.models import Trial


@pytest.fixture
def job(db):
    team = Team.objects.create(slug="demo", name="Demo")
    owner = User.objects.create(username="ada")
    return Job.objects.create(kind="study", name="sweep", team=team, owner=owner, spec={})


@pytest.fixture
def trials(job):
    """120 trials with ties, missing metrics, and a hyperparameter of several types."""
    rng = random.Random(0)
    rows = [
        Trial(
            job=job,
            number=number,
            config={
                "lr": 10 ** rng.uniform(-3, 0),
                "batch_size": rng.choice([32, 64, 128]),
                "act": rng.choice(["relu", "tanh", None, True, 3, [1, 2]]),
                **({"only_some": rng.random()} if number % 3 == 0 else {}),
            },
            state=rng.choice(["completed", "stopped", "failed", "running"]),
            metric=rng.choice([None, round(rng.random(), 1)]),
            epochs=rng.randint(0, 20),
            device_seconds=rng.random(),
            started_s=rng.choice([None, rng.random()]),
            curve=[[1, 0.5]],
            log="x" * 100,
        )
        for number in range(120)
    ]
    Trial.objects.bulk_create(rows)
    return rows
