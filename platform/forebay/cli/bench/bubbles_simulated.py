"""The simulated settings of `forebay bench bubbles`: bubbles of a large pipeline, two generations of devices.

Constants that come from elsewhere are named with their source; all the rest is computed.
"""

import statistics
from typing import Any

import numpy as np

from cluster.core.coordinator.slots import LATENCY_S, STEP_SHARE
from cluster.core.simulator.kinds import (
    ArrivingStudy,
    Chooser,
    DeviceKind,
    blind,
    by_activity,
    completion_times_s,
    newest_first,
)
from cluster.core.simulator.squeezing import SimulatedStudy, asha_rung_ends, guest_speed, study_makespan_s
from jobs.core.pipeline import Durations, build_schedule, simulate

STAGES, MICROBATCHES, DEVICES = 4, 4, 32
PAPER_GUEST_SPEED = 0.15  # Hydro (OSDI 2023): a guest's throughput in bubbles over its exclusive one
PAPER_SPEEDUP, PAPER_KINDS_SPEEDUP = 2.7, 1.3
USUAL_CHUNK_S = {"F": [0.03], "B": [0.06]}
# A fused step of digits-mlp, measured on one core: 1.76 ms + 0.215 ms * F. Only the ratio of the two counts:
# the scale is that of the authors' public ResNet-18 artifact, 515 device-seconds for a container of 8 or 9
# trials over 100 epochs and 332 s for a target.
STEP_MS, EACH_MS, ARTIFACT_CONTAINER_S, ARTIFACT_TRIALS, ARTIFACT_TARGET_S = 1.76, 0.215, 515.0, 8.33, 332.0
EPOCHS, GRACE, REDUCTION, LARGEST = 100, 3, 3, 16
TRIALS = (75, 150, 300, 1000)

KINDS = (DeviceKind("A100", 16, 0), DeviceKind("V100", 16, 1))
STUDIES, WITHIN_S, SEEDS = 20, 3600.0, 15
# Run time on a V100 over that on an A100: work that fills the device, and work that leaves it half idle.
FULL_SLOWDOWN, IDLE_SLOWDOWN, BUSY_TARGET_SLOWDOWN = 2.2, 1.15, 1.7
LOADS = {"light": 2.0, "medium": 10.0, "heavy": 20.0}  # seconds per epoch of a full container


def simulated(chunk_s: dict[str, list[float]] | None = None) -> dict[str, Any]:
    """Both settings; `chunk_s` are measured seconds of a stage's forward and backward, if there are any."""
    return {"pipeline": pipeline_case(chunk_s), "kinds": kinds_case()}


def pipeline_case(chunk_s: dict[str, list[float]] | None) -> dict[str, Any]:
    """One exclusive device and the bubbles of 32 under a pipeline of four stages."""
    own = _bubble_speeds(chunk_s)
    rows = []
    for scheduler in ("random", "asha"):
        for trials in TRIALS:
            study = _study(trials, scheduler)
            alone_s = study_makespan_s(study, [1.0])
            paper_s = study_makespan_s(study, [1.0] + [PAPER_GUEST_SPEED] * DEVICES)
            ours_s = study_makespan_s(study, [1.0, *own])
            rows.append(
                {
                    "scheduler": scheduler,
                    "trials": trials,
                    "alone_s": alone_s,
                    "speedup": alone_s / paper_s,
                    "speedup_whole_bubbles": alone_s / ours_s,
                }
            )
    return {
        "simulated": True,
        "setting": f"{STAGES} stages, {DEVICES} GPUs, 1 exclusive, ASHA, 300 trials",
        "guest_speed": PAPER_GUEST_SPEED,
        "whole_bubble_speeds": sorted(set(own)),
        "stage_times": "measured" if chunk_s else "assumed",
        "rows": rows,
        "speedup": next(r["speedup"] for r in rows if r["scheduler"] == "asha" and r["trials"] == 300),
        "paper_speedup": PAPER_SPEEDUP,
        "asha_trials_for_paper_speedup": _trials_for(PAPER_SPEEDUP),
    }


def _study(trials: int, scheduler: str) -> SimulatedStudy:
    scale = ARTIFACT_CONTAINER_S / EPOCHS / (STEP_MS + EACH_MS * ARTIFACT_TRIALS)
    ends = asha_rung_ends(GRACE, REDUCTION, EPOCHS) if scheduler == "asha" else (EPOCHS,)
    return SimulatedStudy(
        trials, ends, REDUCTION, STEP_MS * scale, EACH_MS * scale, LARGEST, ARTIFACT_TARGET_S
    )


def _trials_for(speedup: float) -> int | None:
    """The smallest number of trials, by steps of 25, with which a study gains that much."""
    for trials in range(25, 2001, 25):
        study = _study(trials, "asha")
        bubbles = [1.0] + [PAPER_GUEST_SPEED] * DEVICES
        if study_makespan_s(study, [1.0]) / study_makespan_s(study, bubbles) >= speedup:
            return trials
    return None


def _bubble_speeds(chunk_s: dict[str, list[float]] | None) -> list[float]:
    """A guest's speed on every device if it could use all of each bubble that fits a step."""
    mean = {kind: statistics.mean(values) for kind, values in (chunk_s or USUAL_CHUNK_S).items()}
    schedule = build_schedule("1f1b", STAGES, MICROBATCHES)
    timeline = simulate(schedule, Durations([mean["F"]] * STAGES, [mean["B"]] * STAGES))
    step_s = (STEP_MS + EACH_MS * LARGEST) / 1e3
    speeds = []
    for rank in range(STAGES):
        lengths = [bubble.end - bubble.start for bubble in timeline.bubbles(rank)]
        speed = guest_speed(lengths, timeline.makespan, step_s, step_share=STEP_SHARE, latency_s=LATENCY_S)
        speeds += [speed] * (DEVICES // STAGES)
    return speeds


def kinds_case() -> dict[str, Any]:
    """20 studies within an hour on 16 A100 and 16 V100."""
    rows = []
    for load, unit_s in LOADS.items():
        found: dict[str, list[float]] = {"blind": [], "newest first": [], "by activity": []}
        choosers: dict[str, Chooser] = {
            "blind": blind,
            "newest first": newest_first,
            "by activity": by_activity,
        }
        for seed in range(SEEDS):
            studies = _arrivals(np.random.default_rng(seed), unit_s)
            for name, choose in choosers.items():
                times = completion_times_s(studies, KINDS, choose, np.random.default_rng(seed))
                found[name].append(statistics.mean(times))
        mean = {name: statistics.mean(values) for name, values in found.items()}
        rows.append(
            {
                "load": load,
                "average_completion_s": mean,
                "speedup": mean["blind"] / mean["by activity"],
                "speedup_over_newest_first": mean["newest first"] / mean["by activity"],
            }
        )
    medium = next(row for row in rows if row["load"] == "medium")
    return {
        "simulated": True,
        "setting": "16 A100 and 16 V100, 20 studies in an hour, medium load",
        "assumed_slowdown_on_v100": {
            "fused": FULL_SLOWDOWN,
            "target below 50 % activity": IDLE_SLOWDOWN,
            "other target": BUSY_TARGET_SLOWDOWN,
        },
        "seeds": SEEDS,
        "rows": rows,
        "speedup": medium["speedup"],
        "paper_speedup": PAPER_KINDS_SPEEDUP,
    }


def _arrivals(rng: np.random.Generator, unit_s: float) -> list[ArrivingStudy]:
    studies = []
    for _ in range(STUDIES):
        trials = int(rng.choice([75, 100, 150]))
        epoch_s = rng.uniform(0.5, 1.5) * unit_s
        rungs, begin = [], 0
        for end in asha_rung_ends(GRACE, REDUCTION, EPOCHS):
            rungs.append((max(1, -(-trials // LARGEST)), (end - begin) * epoch_s))
            begin, trials = end, max(1, trials // REDUCTION)
        activity = rng.uniform(0.25, 0.65)
        studies.append(
            ArrivingStudy(
                rng.uniform(0, WITHIN_S),
                tuple(rungs),
                EPOCHS * epoch_s * rng.uniform(0.6, 1.2),
                activity,
                FULL_SLOWDOWN,
                IDLE_SLOWDOWN if activity < 0.5 else BUSY_TARGET_SLOWDOWN,
            )
        )
    return studies
