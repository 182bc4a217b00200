"""`forebay bench tune`: makespan of a study against Ray Tune and Optuna on the same machine.

Every contender is a command of its own, timed from outside, from the start of the process to its end:
imports, start-up, profiling, search and the training of the target models included. All get the same
configurations.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from forebay.cli.bench import report
from forebay.cli.errors import CommandError, Exit
from forebay.cli.output import say
from forebay.supervisor.process import follow_parent

WORKLOADS = ("digits-mlp", "mnist-cnn", "mnist1d-conv", "pydoc-gpt")
BASELINES = ("ray", "optuna")
GRACE, REDUCTION = 3, 3


@dataclass
class Case:
    """One workload under one scheduler, and what was measured of every contender.

    With a `sample`, the others train only so many of the trials.
    """

    workload: str
    scheduler: str
    trials: int
    seed: int
    job: dict[str, Any]
    sample: int | None = None
    metrics: dict[str, list[float | None]] = field(default_factory=dict)
    documents: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What people call the case."""
        return f"{self.workload} {self.scheduler}"


@click.command(name="tune")
@click.option(
    "--workload", "workloads", multiple=True, type=click.Choice(WORKLOADS), help="All, if not given."
)
@click.option("--trials", type=click.IntRange(min=2), help="Trials of a study [100, quick 20].")
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    type=click.Choice(("fifo", "asha")),
    help="Both, if not given.",
)
@click.option(
    "--against", "baselines", multiple=True, type=click.Choice(BASELINES), help="Both, if not given."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of configurations and training [0].")
@click.option(
    "--sample",
    type=click.IntRange(min=2),
    help="The others train only so many of the trials; how long all take is estimated. Only with fifo.",
)
@report.options(rounds=3, quick_rounds=1)
def command(
    workloads: tuple[str, ...],
    trials: int | None,
    schedulers: tuple[str, ...],
    baselines: tuple[str, ...],
    seed: int,
    sample: int | None,
    as_json: bool,
    quick: bool,
    rounds: int,
) -> None:
    """Makespan of whole studies, target training included, against Ray Tune and Optuna (two processes).

    --quick: 20 trials of digits-mlp. There the target's own training bounds the ratio; the bound is stated.
    """
    names = workloads or (WORKLOADS[:1] if quick else WORKLOADS)
    count = trials or (20 if quick else 100)
    if sample is not None and (schedulers != ("fifo",) or sample >= count):
        rule = "needs --scheduler fifo, under which all trials train as long, and fewer trials than the study"
        raise click.BadParameter(rule, param_hint="--sample")
    results = []
    for name in names:
        for scheduler in schedulers or ("fifo", "asha"):
            case = _case(name, scheduler, count, seed, sample)
            say(f"{case.name}: {count} trials, {case.job['epochs']} epochs")
            contenders: dict[str, Callable[[], float | None]] = {"forebay": _forebay(case)}
            contenders |= {base: _baseline(case, base) for base in baselines or BASELINES}
            times = report.interleaved(contenders, rounds, warm_up=False)
            results.append(_result(case, times))
            say(_line(results[-1]))
    lines = [_line(result) for result in results]
    report.show("tune", rounds, quick, as_json, {"results": results}, lines)


def _case(workload: str, scheduler: str, trials: int, seed: int, sample: int | None) -> Case:
    """Draw the configurations that every contender trains: those that Forebay's random search draws."""
    from tuning.core.search import make_searcher
    from tuning.core.workload import check_workload
    from workers.trainer.loading import load_workload

    loaded = load_workload(workload)
    searcher = make_searcher("random", check_workload(loaded), seed, loaded.mode)
    job = {
        "workload": workload,
        "scheduler": scheduler,
        "configs": searcher.ask(trials),
        "epochs": loaded.epochs,
        "grace": GRACE,
        "reduction": REDUCTION,
        "mode": loaded.mode,
        "seed": seed,
    }
    return Case(workload, scheduler, trials, seed, job, sample)


def _forebay(case: Case) -> Callable[[], float]:
    def run() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable, "-m", "forebay.cli.main", "tune", case.workload, "--json",
                "--trials", str(case.trials), "--scheduler", case.scheduler, "--seed", str(case.seed),
                "--out", str(Path(folder) / "study"),
            ]  # fmt: skip
            if case.scheduler == "asha":
                command += ["--grace", str(GRACE), "--reduction", str(REDUCTION)]
            seconds, document = _timed(command)
        case.documents.append(document)
        case.metrics.setdefault("forebay", []).append(document["best"]["metric"])
        return seconds

    return run


def _baseline(case: Case, name: str) -> Callable[[], float]:
    job = {**case.job, "configs": case.job["configs"][: case.sample]}

    def run() -> float:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.json"
            path.write_text(json.dumps(job))
            command = [sys.executable, "-m", "forebay.cli.bench.tune_baselines", name, str(path)]
            seconds, found = _timed(command)
        # The best of a sample says nothing about the best of all.
        case.metrics.setdefault(name, []).append(None if case.sample else found["metric"])
        return seconds + found["search_s"] * (case.trials / len(job["configs"]) - 1)

    return run


def _timed(command: list[str]) -> tuple[float, dict[str, Any]]:
    """Run a command, and return its wall seconds and the JSON on its last line."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_TRAIN_V2_ENABLED": "0"}
    started = time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        preexec_fn=follow_parent(signal.SIGTERM),
    )
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CommandError(f"{command[2]} {command[3]} failed: {last}", Exit.FAILED)
    document: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds, document


def _result(case: Case, times: dict[str, report.Times]) -> dict[str, Any]:
    ours = times["forebay"].median_s
    document = case.documents[-1]
    spans = [t["end_s"] - t["start_s"] for t in document["targets"] if t["state"] == "completed"]
    one_target_s = min(spans, default=None)
    others = {name: found.median_s for name, found in times.items() if name != "forebay"}
    devices = max(len(document["devices"]), 1)
    return {
        "workload": case.workload,
        "scheduler": case.scheduler,
        "trials": case.trials,
        "others_estimated_from": case.sample,
        "epochs": case.job["epochs"],
        "mode": case.job["mode"],
        "makespan": {name: found.as_dict() for name, found in times.items()},
        "metric": {name: _median(values) for name, values in case.metrics.items()},
        "metrics": case.metrics,
        "ratio": {name: seconds / ours for name, seconds in others.items()},
        "one_target_s": one_target_s,
        "ratio_bound_by_target": {
            name: seconds / one_target_s if one_target_s else None for name, seconds in others.items()
        },
        "overhead_share": {
            name: statistics.median(d[f"{name}_s"] / devices / d["makespan_s"] for d in case.documents)
            for name in ("profiling", "repacking")
        },
        "search_s": document["search_s"],
        "target_s": document["target_s"],
        "transfer": document["transfer"],
    }


def _median(values: list[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return statistics.median(finite) if finite else None


def _line(result: dict[str, Any]) -> str:
    ours = result["makespan"]["forebay"]["median_s"]
    metric = _short(result["metric"]["forebay"])
    parts = [f"{result['workload']} {result['scheduler']}: {ours:.1f} s, metric {metric}"]
    for name, ratio in result["ratio"].items():
        bound = result["ratio_bound_by_target"][name]
        limit = f", at most {bound:.0f}x by the target alone" if bound else ""
        theirs = f"{result['makespan'][name]['median_s']:.1f} s"
        if result["others_estimated_from"]:
            theirs += f" estimated from {result['others_estimated_from']} trials"
        parts.append(f"{ratio:.1f}x {name} ({theirs}, metric {_short(result['metric'][name])}{limit})")
    overhead = sum(result["overhead_share"].values())
    return "; ".join([*parts, f"profiling and repacking {overhead:.1%}"])


def _short(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
