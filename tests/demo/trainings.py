"""A training job with an incident, as its driver would have left it: rows and events.

Written through the models, in bulk, so that tests of pages need no driver and 50,000 trials take seconds.
"""

import copy
import math
import random
from datetime import timedelta
from typing import Any

from django.utils import timezone

from cluster.models import Team, User
from jobs.core.states import JobKind, JobState
from jobs.models import Iteration, Job, Reconfiguration, TrainingRun
from jobs.services.reconfigurations import Proposal, propose
from journal.services import Fact, record
from telemetry.core.states import VerdictKind
from telemetry.models import Verdict
from telemetry.services.verdicts import FoundVerdict, open_verdict
from tests.demo.studies import cores


def training(
    owner: User,
    team: Team,
    *,
    state: JobState = JobState.RUNNING,
    steps: int = 60,
    name: str = "tiny GPT",
    slow_from: int | None = None,
) -> Job:
    """Return a training job of two pipelines of two stages; rank 1 is slow from a step on."""
    devices = cores()
    now = timezone.now()
    layout = pipelines((2, 2), (2, 2), microbatches=(4, 4))
    spec_layout = {
        "replicas": [
            {"microbatches": 4, "stages": [{"layers": 2, "tensor_parallel": 1}] * 2} for _ in range(2)
        ]
    }
    job = Job.objects.create(
        kind=JobKind.TRAINING,
        name=name,
        team=team,
        owner=owner,
        state=state,
        reason="its machine was taken away" if state is JobState.FAILED else "",
        spec={
            "workload": "pydoc-gpt",
            "parameters": {"layers": 4, "width": 64, "heads": 4, "context": 64, "microbatch_tokens": 256},
            "layout": spec_layout, "schedule": "1f1b", "microbatches": 8, "steps": 200,
            "checkpoint_every": 50, "devices": 4, "seed": 0, "lr": 0.003, "lend_bubbles": True,
            "recovery": {"approve": ["repartition", "regroup", "exclude"], "auto": ["rebalance"],
                         "fail_stop": "proceed", "expire_s": 3600.0},
        },
        started_at=None if state is JobState.QUEUED else now - timedelta(seconds=steps),
        ended_at=now if state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED) else None,
        attempt=1,
    )  # fmt: skip
    begun = state is not JobState.QUEUED
    places = [{"id": str(d.pk), "label": str(d), "node": d.node.name} for d in devices]
    run = TrainingRun.objects.create(
        job=job,
        steps_total=200,
        step=steps if begun else 0,
        epoch=1 if begun else 0,
        layout=layout,
        devices=[places[rank % len(places)] for rank in range(4)] if begun else [],
        loss=2.31 if begun else None,
        iteration_s=(0.42 if slow_from is None else 0.93) if begun else None,
        expected_s=0.4 if begun else None,
        checkpoint_step=50 if begun else None,
        costs={"ranks": {str(r): {"forward_s": 0.02, "backward_s": 0.04} for r in range(4)}} if begun else {},
        health=[{"rank": r, "slowdown": 2.5 if r == 1 and slow_from is not None else 1.0} for r in range(4)]
        if begun
        else [],
    )
    if begun:
        Iteration.objects.bulk_create(_iterations(run, steps, slow_from), batch_size=2000)
    for stream in (job.stream, f"team:{team.pk}"):
        record(stream, [Fact("job.state", {"state": state})])
    return job


def pipelines(*stages: tuple[int, ...], microbatches: tuple[int, ...]) -> dict[str, Any]:
    """Return a layout of pipelines with these layers per stage, one rank each, numbered in order."""
    rank, replicas = 0, []
    for layers, count in zip(stages, microbatches, strict=True):
        rows = [{"devices": [f"r{rank + i}"], "layers": own} for i, own in enumerate(layers)]
        rank += len(layers)
        replicas.append({"microbatches": count, "stages": rows})
    return {"replicas": replicas, "idle": [], "dead": []}


def _iterations(run: TrainingRun, steps: int, slow_from: int | None) -> list[Iteration]:
    rng = random.Random(1)
    rows = []
    for step in range(1, steps + 1):
        slow = slow_from is not None and step >= slow_from
        seconds = (0.93 if slow else 0.4) * (1 + rng.gauss(0, 0.02))
        loss = 4.6 * math.exp(-step / 80) + rng.gauss(0, 0.03)
        rows.append(
            Iteration(run=run, step=step, epoch=1, seconds=seconds, expected_s=0.4, loss=loss, tokens=2048)
        )
    rows[-1].ranks = [_rank(rank, slow_from is not None and rank == 1) for rank in range(4)]
    return rows


def _rank(rank: int, slow: bool) -> dict[str, Any]:
    """One rank's iteration on a clock of its own, by a schedule of four micro-batches."""
    clock, chunks, bubbles = 0.0, [], []
    order = [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("F", 3), ("B", 2), ("B", 3)]
    for slot, (kind, microbatch) in enumerate(order):
        wait = 0.02 if kind == "B" or (rank % 2 and microbatch == 0) else 0.0
        if wait:
            bubbles.append({"slot": slot, "seconds": wait})
        seconds = (0.02 if kind == "F" else 0.04) * (2.5 if slow else 1.0)
        chunks.append({"type": kind, "microbatch": microbatch, "stage": rank % 2, "seconds": seconds})
        clock += wait + seconds
    bubbles.append({"slot": len(order), "seconds": 0.03})
    return {"rank": rank, "replica": rank // 2, "stage": rank % 2, "seconds": clock + 0.03,
            "own_s": 0.24, "chunks": chunks, "bubbles": bubbles}  # fmt: skip


def incident(job: Job, *, kind: VerdictKind = VerdictKind.DEVICE_FAIL_SLOW) -> Verdict:
    """Open an incident on rank 1 of a training job, through the service."""
    run = job.training
    steps = list(range(10, 44))
    found = FoundVerdict(
        kind=kind,
        subject={"rank": 1, "replica": 0, "stage": 1, "node": "box"},
        confidence=0.99,
        factor=2.5,
        first_step=40,
        detected_step=43,
        evidence=[
            {"test": "same_stage_peers", "value": 2.5, "threshold": 1.15, "samples": 44},
            {"test": "cusum", "value": 14.2, "threshold": 9.0, "samples": 4},
            {"test": "against_own_past", "value": 2.4, "threshold": 1.15, "samples": 40},
        ],
        series={
            "unit": "seconds per micro-batch",
            "steps": steps,
            "subject": [0.06 if step < 40 else 0.15 for step in steps],
            "peers": [0.06 for _ in steps],
        },
        first_sample_at=timezone.now() - timedelta(seconds=6),
    )
    device = run.devices[1]["id"] if run.devices else None
    return open_verdict(job_id=job.pk, found=found, device_id=device)[0]


def plan(job: Job, verdict: Verdict | None = None, **changes: Any) -> Reconfiguration:
    """Propose to take layers off the slow rank, through the service; other plans stand beside it."""
    run = TrainingRun.objects.get(pk=job.pk)
    before = run.layout
    wanted = pipelines((3, 1), (2, 2), microbatches=(3, 5))
    moved = copy.deepcopy(before)
    for replica, count in zip(moved["replicas"], (2, 6), strict=True):
        replica["microbatches"] = count
    memory = [
        {"rank": r, "before_bytes": 40 << 20, "after_bytes": (60, 20, 40, 40)[r] << 20,
         "available_bytes": 2 << 30}
        for r in range(4)
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "kind": "repartition", "epoch": run.epoch, "before": before, "plan": wanted,
        "baseline_iteration_s": 0.93, "predicted_iteration_s": 0.55, "predicted_pause_s": 1.1,
        "moved_bytes": 600_000, "memory": memory, "verdict_id": verdict.pk if verdict else None,
        "facts": {"speeds": {"1": 0.4}, "gap": 0.0, "optimal": True},
        "alternatives": [
            {"name": "no_action", "title": "do nothing", "kind": None, "plan": before,
             "predicted_iteration_s": 0.93, "predicted_pause_s": 0.0, "moved_bytes": 0,
             "needs_checkpoint": False, "memory": memory, "reason": "69.09% slower than the plan"},
            {"name": "rebalance", "title": "move micro-batches between replicas only", "kind": "rebalance",
             "plan": moved, "predicted_iteration_s": 0.71, "predicted_pause_s": 0.9, "moved_bytes": 0,
             "needs_checkpoint": False, "memory": memory, "reason": "29.09% slower than the plan"},
            {"name": "reroute", "title": "send the micro-batches of dead stages elsewhere", "kind": None,
             "plan": None, "predicted_iteration_s": None, "predicted_pause_s": None, "moved_bytes": 0,
             "needs_checkpoint": False, "memory": [], "reason": "cannot run: nobody is dead"},
        ],
    }  # fmt: skip
    return propose(job_id=job.pk, proposal=Proposal(**(fields | changes)), by_policy=False)
