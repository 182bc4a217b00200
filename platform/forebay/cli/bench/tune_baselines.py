"""The other tuners of `forebay bench tune`, each a process of its own: Ray Tune, and Optuna in two processes.

    python -m forebay.cli.bench.tune_baselines ray JOB.json

They train the same workload at full width with plain PyTorch, on the same configurations, one trial per core,
with the same batches from tensors in memory, so that neither pays for a data loader. Their best trial is
their model. Prints `{"metric": ..., "trials": ..., "search_s": ...}`.
"""

import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

CORES = 2


def train_plainly(job: dict[str, Any], config: dict[str, Any], report: Callable[[int, float], bool]) -> None:
    """Train one configuration at full width; `report(epoch, metric)` returns whether to stop."""
    import torch

    from workers.trainer.batches import has_batch_norm, load_data
    from workers.trainer.loading import load_workload

    torch.set_num_threads(1)
    workload = load_workload(job["workload"])
    torch.manual_seed(job["seed"])
    data = load_data(workload, config, "cpu")
    model = workload.model(config)
    kind, arguments = workload.optimizer(config)
    optimizer = kind(model.parameters(), **arguments)
    schedule = workload.scheduler(config)
    scheduler = schedule[0](optimizer, **schedule[1]) if schedule else None
    batch_size = config.get("batch_size", workload.batch_size)
    for epoch in range(1, job["epochs"] + 1):
        model.train()
        for inputs, targets in data.training_batches(job["seed"], epoch, batch_size, has_batch_norm(model)):
            loss = workload.loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if report(epoch, _evaluate(workload, model, data)):
            return


def _evaluate(workload: Any, model: Any, data: Any) -> float:
    import torch

    model.eval()
    sums: dict[str, float] = {}
    samples = 0
    with torch.no_grad():
        for inputs, targets in data.validation_batches():
            output = model(inputs)
            values = {"loss": workload.loss(output, targets), **workload.metrics(output, targets)}
            samples += len(targets)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(targets)
    means = {name: value / samples for name, value in sums.items()}
    return float(workload.summarize(means)[workload.metric])


def run_ray(job: dict[str, Any]) -> dict[str, Any]:
    """Run the study with Ray Tune, as its documentation shows it."""
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    def trainable(config: dict[str, Any]) -> None:
        def report(epoch: int, metric: float) -> bool:
            tune.report({"metric": metric, "epoch": epoch})
            return False

        train_plainly(job, config["config"], report)

    asha = ASHAScheduler(
        time_attr="training_iteration",
        max_t=job["epochs"],
        grace_period=job["grace"],
        reduction_factor=job["reduction"],
    )
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        results = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space={"config": tune.grid_search(job["configs"])},
            tune_config=tune.TuneConfig(
                metric="metric",
                mode=job["mode"],
                scheduler=asha if job["scheduler"] == "asha" else FIFOScheduler(),
            ),
            run_config=tune.RunConfig(storage_path=folder, name="study", verbose=0),
        ).fit()
        rows = [results[index].metrics for index in range(len(results))]
        search_s = time.perf_counter() - started
    ray.shutdown()
    full = [row for row in rows if row and row.get("training_iteration") == job["epochs"]]
    return _best(job, [row["metric"] for row in full], len(rows), search_s)


def run_optuna(job: dict[str, Any]) -> dict[str, Any]:
    """Run the study with Optuna: two processes on one journal."""
    import subprocess

    with tempfile.TemporaryDirectory() as folder:
        journal = os.path.join(folder, "journal")
        study = _optuna_study(job, journal)
        for config in job["configs"]:
            study.enqueue_trial({"config": json.dumps(config)})
        path = os.path.join(folder, "job.json")
        with open(path, "w") as file:
            json.dump({**job, "journal": journal}, file)
        command = [sys.executable, "-m", "forebay.cli.bench.tune_baselines", "optuna-worker", path]
        started = time.perf_counter()
        for worker in [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(CORES)]:
            if worker.wait() != 0:
                raise RuntimeError("an Optuna worker failed")
        search_s = time.perf_counter() - started
        trials = study.get_trials(deepcopy=False)
        full = [t.value for t in trials if t.state.name == "COMPLETE" and t.value is not None]
        return _best(job, full, len([t for t in trials if t.state.is_finished()]), search_s)


def run_optuna_worker(job: dict[str, Any]) -> dict[str, Any]:
    """Take trials from the journal until all are done."""
    import optuna
    from optuna.study import MaxTrialsCallback
    from optuna.trial import TrialState

    def objective(trial: Any) -> float:
        texts = [json.dumps(config) for config in job["configs"]]
        config = json.loads(trial.suggest_categorical("config", texts))
        last = [math.nan]

        def report(epoch: int, metric: float) -> bool:
            last[0] = metric
            if job["scheduler"] != "asha":
                return False
            trial.report(metric, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
            return False

        train_plainly(job, config, report)
        return last[0]

    finished = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    stop = MaxTrialsCallback(len(job["configs"]), states=finished)
    _optuna_study(job, job["journal"]).optimize(objective, callbacks=[stop])
    return {}


def _optuna_study(job: dict[str, Any], journal: str) -> Any:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.SuccessiveHalvingPruner(
        min_resource=job["grace"], reduction_factor=job["reduction"]
    )
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(journal)),
        study_name="study",
        load_if_exists=True,
        direction="maximize" if job["mode"] == "max" else "minimize",
        sampler=optuna.samplers.RandomSampler(seed=job["seed"]),
        pruner=pruner if job["scheduler"] == "asha" else optuna.pruners.NopPruner(),
    )


def _best(job: dict[str, Any], metrics: list[float], trials: int, search_s: float) -> dict[str, Any]:
    finite = [metric for metric in metrics if math.isfinite(metric)]
    best = (max if job["mode"] == "max" else min)(finite, default=None)
    return {"metric": best, "trials": trials, "search_s": search_s}


RUNNERS = {"ray": run_ray, "optuna": run_optuna, "optuna-worker": run_optuna_worker}

if __name__ == "__main__":
    with open(sys.argv[2]) as stream:
        found = RUNNERS[sys.argv[1]](json.load(stream))
    print(json.dumps(found))
