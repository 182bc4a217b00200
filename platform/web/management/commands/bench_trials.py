"""A finished study with very many trials, written through the models without any driver."""

import json
import math
import random
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from django.utils import timezone

from cluster.models import Team
from jobs.core.states import JobKind, JobState
from jobs.models import Job
from tuning.core.states import TrialState
from tuning.models import Study, Trial
from web.services.first_admin import first_admin

EPOCHS = 20
ROWS_PER_INSERT = 2000


class Command(BaseCommand):
    help = "Store a finished study of many trials for a benchmark; prints one JSON document with its id."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--trials", type=int, default=50_000)
        parser.add_argument("--seed", type=int, default=0)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["trials"] < 1:
            raise CommandError("trials: at least 1")
        job = store_study(options["trials"], random.Random(options["seed"]))
        self.stdout.write(json.dumps({"job": str(job.pk), "trials": options["trials"]}))


@transaction.atomic
def store_study(count: int, rng: random.Random) -> Job:
    """Store a study of `count` ended trials with curves, most of them stopped early as ASHA would."""
    owner = first_admin()
    team = Team.objects.order_by("created_at").first()
    assert team is not None  # the first administrator comes with a team
    now = timezone.now()
    job = Job.objects.create(
        kind=JobKind.STUDY,
        name=f"benchmark: {count} trials",
        team=team,
        owner=owner,
        state=JobState.COMPLETED,
        spec={"workload": "digits-mlp", "trials": count, "epochs": EPOCHS},
        started_at=now,
        ended_at=now,
    )
    best: Trial | None = None
    for start in range(0, count, ROWS_PER_INSERT):
        rows = [trial(job, number, rng) for number in range(start, min(count, start + ROWS_PER_INSERT))]
        Trial.objects.bulk_create(rows)
        best = max([*rows, *([best] if best else [])], key=lambda row: row.metric or 0.0)
    assert best is not None
    Study.objects.create(
        job=job,
        workload="digits-mlp",
        metric="accuracy",
        mode="max",
        trials_total=count,
        trials_ended=count,
        best_metric=best.metric,
        best_trial=best.number,
    )
    with connection.cursor() as cursor:  # what autovacuum does within a minute
        cursor.execute("ANALYZE tuning_trial")
    return job


def trial(job: Job, number: int, rng: random.Random) -> Trial:
    """Draw an ended trial: a configuration, a curve that rises to its metric, its time on a device."""
    epochs = rng.choices([3, 9, EPOCHS], weights=[6, 3, 1])[0]
    failed = rng.random() < 0.02
    top = rng.betavariate(8, 2)
    curve = [[epoch, top * (1 - math.exp(-epoch / 4))] for epoch in range(1, epochs + 1)]
    state = TrialState.COMPLETED if epochs == EPOCHS else TrialState.STOPPED
    return Trial(
        job=job,
        number=number,
        config={
            "lr": 10 ** rng.uniform(-3, 0),
            "momentum": rng.uniform(0.5, 0.99),
            "batch_size": rng.choice([32, 64, 128]),
            "gamma": rng.uniform(0.1, 1.0),
        },
        state=TrialState.FAILED if failed else state,
        reason="the loss is not finite" if failed else None,
        metric=None if failed else curve[-1][1],
        epochs=epochs,
        curve=curve,
        device_seconds=epochs * 0.5,
        started_s=number * 0.5,
        ended_s=number * 0.5 + epochs * 0.5,
    )
