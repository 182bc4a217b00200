"""What the stream of a training job says when it starts anew: all that its events would have told."""

from typing import Any

from jobs.core.states import PENDING
from jobs.models import Job
from jobs.services.reconfigurations import reconfiguration_facts
from jobs.services.training import injection_facts
from telemetry.core.states import VerdictState
from telemetry.core.verdict_facts import verdict_facts

RUN = (
    "step", "steps_total", "epoch", "loss", "iteration_s", "expected_s", "checkpoint_step", "layout",
    "devices", "health",
)  # fmt: skip
LATEST = 20


def training_snapshot(job: Job) -> dict[str, Any]:
    """Return a run's figures and layout, open incidents, pending and latest plans, injected faults."""
    run = job.training
    plans = job.reconfigurations.order_by("-created_at", "-id")
    faults = run.injections.order_by("-created_at", "-id")
    return {
        "training": {name: getattr(run, name) for name in RUN},
        "verdicts": [verdict_facts(row) for row in job.verdicts.filter(state=VerdictState.OPEN)],
        "reconfigurations": {
            "pending": [reconfiguration_facts(row) for row in plans.filter(state__in=PENDING)],
            "latest": [reconfiguration_facts(row) for row in plans[:LATEST]],
        },
        "injections": [injection_facts(row) for row in faults[:LATEST]],
    }
