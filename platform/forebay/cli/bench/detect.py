"""`forebay bench detect`: false alarms, right devices, delay, and what a step costs at 10,240 devices."""

import statistics
import time
from typing import Any

import click

from forebay.cli.bench import report
from forebay.cli.output import say

HEALTHY_STEPS, INJECTIONS = (100_000, 2_000), (1_000, 60)
# Jitter of the healthy jobs, as a share of the time.
JITTERS = (0.02, 0.05, 0.1)
MODEL_JITTER = 0.01
MODEL_STEPS = (200, 60)
WARM_UP = 3  # steps of a simulated job that take long whatever their work


@click.command(name="detect")
@report.options(rounds=40, quick_rounds=15)
def command(as_json: bool, quick: bool, rounds: int) -> None:
    """Quality and cost of fail-slow detection on simulated jobs.

    Sequences vary the work by 1.6x; rounds are the steps at 10,240 devices whose CPU time is measured.
    """
    healthy = [_healthy(jitter, HEALTHY_STEPS[quick] // len(JITTERS)) for jitter in JITTERS]
    injected = _injected(INJECTIONS[quick])
    cost, model = _cost(rounds), _model(MODEL_STEPS[quick])
    figures = {"healthy": healthy, "injections": injected, "cost": cost, "model": model}
    lines = report.table(
        ("jitter", "steps", "our alarms", "1.25x threshold", "relative score"),
        [tuple(row.values()) for row in healthy],
    )
    lines += ["", f"injections: {injected['right']} of {injected['injections']} right and nothing else"]
    lines += [f"steps until detected: median {injected['delay_median']:.3g}, 95 % {injected['delay_95']:.3g}"]
    lines += [f"10,240 devices: {cost['cpu_median_s'] * 1e3:.1f} ms of CPU a step", ""]
    lines += report.table(
        ("workload model", "jitter", "micro-batches", "error of one", "error of an iteration"),
        [tuple(row.values()) for row in model],
    )
    report.show("detect", rounds, quick, as_json, figures, lines)


def _healthy(jitter: float, steps: int) -> dict[str, Any]:
    from forebay.cli.bench.detect_cases import IterationThreshold, RelativeScore, SimulatedJob
    from telemetry.core.detector import FAULTS, Detector

    say(f"{steps:,} healthy steps at {jitter:.0%} jitter")
    detector, threshold, score = Detector(), IterationThreshold(), RelativeScore()
    for batch in SimulatedJob(4, 2, 1, jitter, seed=int(1000 * jitter)).steps(steps):
        for each in (detector, threshold, score):
            each.update(batch)
    alarms = sum(verdict.kind in FAULTS for verdict in detector.verdicts())
    return {
        "jitter": jitter,
        "steps": steps,
        "alarms": alarms,
        "threshold_alarms": threshold.alarms,
        "relative_score_alarms": score.alarms,
    }


def _injected(count: int) -> dict[str, Any]:
    from forebay.cli.bench.detect_cases import random_injection
    from telemetry.core.detector import FAULTS, Detector

    say(f"{count:,} random slow devices")
    right, delays = 0, []
    for seed in range(count):
        job, steps = random_injection(seed)
        detector = Detector()
        for batch in job.steps(steps):
            detector.update(batch)
        faults = [verdict for verdict in detector.verdicts() if verdict.kind in FAULTS]
        if [fault.subject.rank for fault in faults] == [job.slow_rank] and faults[
            0
        ].detected_step is not None:
            right += 1
            delays.append(faults[0].detected_step - job.onset + 1)
    delays.sort()
    return {
        "injections": count,
        "right": right,
        "share": right / count,
        "delay_median": statistics.median(delays) if delays else None,
        "delay_95": delays[int(0.95 * len(delays))] if delays else None,
    }


def _model(steps: int) -> list[dict[str, Any]]:
    """Mean errors of the workload model, on held-out work: simulated, and of a real run on this machine."""
    from forebay.cli.bench.detect_cases import SimulatedJob
    from forebay.cli.bench.detect_model import errors, real_run

    say("the workload model")
    batches = SimulatedJob(4, 2, 1, MODEL_JITTER, seed=0).steps(steps)
    rows = {
        (step, number): [batch.tokens[number], batch.sum_sq[number], batch.compute_s[number]]
        for step, batch in enumerate(batches)
        for number in range(len(batch.tokens))
        if step >= WARM_UP and batch.stage[number] == 0
    }
    runs: list[tuple[str, float | None, dict[str, Any]]]
    runs = [("simulated", MODEL_JITTER, {"microbatches": len(rows), **errors(rows)})]
    runs += [(f"this machine, stage {stage}", None, row) for stage, row in enumerate(real_run(steps))]
    return [{"run": name, "jitter": jitter, **row} for name, jitter, row in runs]


def _cost(rounds: int) -> dict[str, Any]:
    from forebay.cli.bench.detect_cases import SimulatedJob
    from telemetry.core.detector import Detector

    say("10,240 devices")
    detector, seconds = Detector(), []
    for batch in SimulatedJob(80, 16, 8, 0.02, 0, slow_rank=77, onset=10, factor=1.5).steps(rounds):
        begin = time.process_time()
        detector.update(batch)
        seconds.append(time.process_time() - begin)
    # The first step meets every device for the first time.
    later = seconds[1:] or seconds
    return {
        "devices": 10_240,
        "cpu_median_s": statistics.median(later),
        "cpu_max_s": max(later),
        "cpu_first_s": seconds[0],
    }
