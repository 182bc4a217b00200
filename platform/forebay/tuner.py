"""`forebay.tune`: a whole study in this process tree, without a server."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.local.devices import (
    DeviceProcess,
    device_names,
    may_fork,
    threads_per_device,
    torch_device,
)
from forebay.local.driver import LocalDriver, Watcher
from forebay.local.folder import StudyFolder
from forebay.local.report import result_document
from forebay.local.transfer_check import coordinate_verdict
from tuning.core.errors import SnapshotError, SpecError, WorkloadError
from tuning.core.study import Finish, Resumed, RunLost, Study, StudySpec
from tuning.core.workload import Workload, check_workload

CORES_AS_THREADS = "idle cores of this machine help it as threads, which need no exchange"


@dataclass
class TuneResult:
    """What a study found. `document` is what `forebay tune --json` prints."""

    document: dict[str, Any]
    study: Study = field(repr=False)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best full-width model: trial, config, metric, surrogate_metric, model; None without one."""
        best: dict[str, Any] | None = self.document["best"]
        return best

    @property
    def trials(self) -> Any:
        """The trials as a pandas data frame: the columns of `trial_table`, with `config.*` columns."""
        import pandas as pd

        rows = []
        for row in self.document["trial_table"]:
            config = {f"config.{name}": value for name, value in row["config"].items()}
            rows.append({**{name: value for name, value in row.items() if name != "config"}, **config})
        return pd.DataFrame(rows)

    @property
    def figures(self) -> dict[str, Any]:
        """Plotly figures by name: best so far, learning curves, timeline, parallel coordinates, transfer."""
        from forebay.local.figures import all_figures

        return all_figures(self.study, self.document)


def tune(
    workload: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    parameters: Mapping[str, Any] | None = None,
    check_transfer: bool = False,
    watcher: Watcher | None = None,
    started_s: float | None = None,
    **options: Any,
) -> TuneResult:
    """Search hyperparameters on narrow surrogates, then train the best at full width.

    `workload` is a `forebay.Workload` class or instance, a function made by `forebay.workload`, a registered
    name, or `package.module:Name`. `options` are the fields of a study's specification: `trials`, `epochs`,
    `target_epochs`, `search`, `scheduler` ("fifo", "asha", "asha-promote", or a dictionary with `grace`
    and `reduction`), `scaling`, `fusion`, `compile`, `eager`, `top_k`, `seed`, `devices`, `deadline_s`,
    `space`, `duplicates`, `parametrization`, `checkpoint_every`. `out` is a folder for models and the
    snapshot (a new temporary one by default), `resume` an earlier one to go on with. `check_transfer` adds a
    coordinate check before the search.

    Raises SpecError for wrong options, WorkloadError for a workload that cannot be used, SnapshotError for a
    folder that cannot be used.
    """
    started = time.monotonic() if started_s is None else started_s
    with _one_thread() as clean:
        reference, instance = resolve_workload(workload, parameters)
        spec = make_spec(reference, parameters, options)
        folder, study, elapsed_s = _open(spec, instance, out, resume)
        return _run(study, folder, instance, started - elapsed_s, clean, check_transfer, watcher)


def rank_fidelity(
    workload: Any, *, configurations: int = 24, top_k: int = 3, **options: Any
) -> dict[str, Any]:
    """Train the same random configurations as surrogates and at full width, and compare the two rankings.

    Returns Spearman's rank correlation, the overlap of the best `top_k`, the regret of choosing by surrogate
    (of the first, and of the best `top_k`), and both metrics of every configuration. `options` are those of
    `tune`; the cost is that of `configurations` full trainings.
    """
    from tuning.core.transfer import fidelity

    found = tune(
        workload, trials=configurations, top_k=configurations, eager=1.0, scheduler="fifo", **options
    )
    study = found.study
    name, mode = study.state.facts.metric, study.state.facts.mode
    surrogate = {trial.number: trial.metric(name) for trial in study.trials}
    full: dict[int, float | None] = {trial.number: None for trial in study.trials}
    full.update({target.trial: target.metric for target in study.targets})
    measured = fidelity(surrogate, full, mode, top_k)
    pairs = [{"trial": t, "surrogate": surrogate[t], "full": full[t]} for t in sorted(surrogate)]
    return {"metric": name, "scaling": study.spec.scaling, **measured.to_json(), "pairs": pairs}


def make_spec(reference: str, parameters: Mapping[str, Any] | None, options: Mapping[str, Any]) -> StudySpec:
    """Return the specification of these options; SpecError names each wrong one."""
    document = {name: value for name, value in options.items() if value is not None}
    if parameters:
        document["parameters"] = dict(parameters)
    space = document.get("space")
    if space is not None:
        document["space"] = _space_document(space)
    return StudySpec.from_dict({"workload": reference, **document}, pointer="")


def _space_document(space: Any) -> dict[str, Any]:
    from tuning.core.errors import Problem
    from tuning.core.space import declared_space

    try:
        return declared_space(space).to_json()
    except SpecError as error:
        raise SpecError([Problem(f"/space{p.pointer}", p.detail) for p in error.problems]) from error


def resolve_workload(workload: Any, parameters: Mapping[str, Any] | None) -> tuple[str, Workload]:
    """Return a workload's name and the object to use."""
    if isinstance(workload, str):
        from workers.trainer.loading import load_workload

        return workload, load_workload(workload, parameters)
    if isinstance(workload, type) and issubclass(workload, Workload):
        workload = workload(**dict(parameters or {}))
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"workload is a {type(workload).__name__}; it must be a forebay.Workload, a function made by "
            "@forebay.workload, or a name"
        )
    check_workload(workload)
    return workload.title(), workload


def _open(spec: StudySpec, workload: Workload, out: Any, resume: Any) -> tuple[StudyFolder, Study, float]:
    from workers.trainer.facts import study_facts

    if resume is not None:
        folder = StudyFolder(Path(resume))
        snapshot, elapsed_s = folder.load()
        study = Study.restore(snapshot, spec)
        for run in list(study.active_runs()):
            study.apply(RunLost(run, elapsed_s, "the study was interrupted"))
        study.apply(Resumed())
        return folder, study, elapsed_s
    folder = StudyFolder(Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="forebay-")))
    folder.create()
    return folder, Study(spec, study_facts(workload, spec)), 0.0


def _run(
    study: Study,
    folder: StudyFolder,
    workload: Workload,
    started_s: float,
    share_cores: bool,
    check_transfer: bool,
    watcher: Watcher | None,
) -> TuneResult:
    from workers.trainer.orders import Setting

    spec = study.spec
    names = device_names(spec.devices)
    threads = threads_per_device(names)
    if share_cores and all(torch_device(name) == "cpu" for name in names):
        study.state.facts = replace(study.state.facts, undivided=CORES_AS_THREADS)
    devices = [DeviceProcess(name, workload, threads, may_fork()) for name in names]
    setting = Setting(
        workload=spec.workload,
        folder=str(folder.path),
        data_seed=study.data_seed,
        parameters=dict(spec.parameters),
        scaling=spec.scaling,
        parametrization=spec.parametrization,
        checkpoint_every=spec.checkpoint_every,
        threads=threads,
    )
    transfer: dict[str, Any] = {}

    def check() -> None:
        if not transfer:
            transfer.update(coordinate_verdict(study, workload, setting))

    driver = LocalDriver(study, folder, devices, setting, started_s, watcher, share_cores, check)
    try:
        for device in devices:
            device.start()
        if check_transfer:
            study.decide(driver.now(), [])
            check()
        finish = driver.run()
        makespan_s = driver.now()
    finally:
        for device in devices:
            device.stop()
    if study.trials and finish.reason != "interrupted":
        check()
    return _finish(study, folder, finish, makespan_s, transfer)


def _finish(
    study: Study, folder: StudyFolder, finish: Finish, makespan_s: float, transfer: dict[str, Any]
) -> TuneResult:
    if transfer.get("coordinate_check") == "failed":
        study.state.warnings.append(
            f"the coordinate check failed ({transfer['coordinate_reason']}): surrogate ranks may not hold"
        )
    folder.tidy(study)
    folder.save(study, makespan_s)
    document = result_document(study, finish, makespan_s)
    document["transfer"].update(transfer)
    folder.write_result(document)
    return TuneResult(document, study)


@contextmanager
def _one_thread() -> Iterator[bool]:
    """Keep this process from starting OpenMP threads, which forked children could not use.

    Yields whether that was possible: not where the caller had PyTorch at work before.
    """
    clean = "torch" not in sys.modules
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield clean
    finally:
        torch.set_num_threads(before)


__all__ = ["SnapshotError", "SpecError", "TuneResult", "WorkloadError", "rank_fidelity", "tune"]
