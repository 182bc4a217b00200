"""The result of a local study, as `forebay tune --json` prints it."""

from typing import Any

from tuning.core.study import Finish, Study, summary


def result_document(study: Study, finish: Finish, makespan_s: float) -> dict[str, Any]:
    """Return everything there is to say about a finished study as strict JSON data."""
    spec, state = study.spec, study.state
    return {
        "workload": spec.workload,
        "trials": len(study.trials),
        "search": spec.search,
        "scheduler": spec.scheduler.name,
        "scaling": spec.scaling,
        "epochs": state.epochs,
        "seed": spec.seed,
        "metric": state.facts.metric,
        "mode": state.facts.mode,
        "state": finish.state,
        "reason": finish.reason,
        "makespan_s": makespan_s,
        **summary(state),
        "devices": list(state.devices),
        "best": study.best(),
        "targets": [target.row() for target in study.targets],
        "trial_table": study.trial_table(),
        "containers": study.containers(),
        "fusion": study.fusion(),
        "compile": study.compilations(),
        "transfer": transfer_document(study),
        "warnings": study.warnings,
    }


def transfer_document(study: Study) -> dict[str, Any]:
    """Return how surrogate metrics compare with those of the targets that were trained."""
    from tuning.core.transfer import fidelity

    state = study.state
    if not state.transfers:
        return {"coordinate_check": "not needed", "rank_correlation": None}
    full = {target.trial: target.metric for target in state.targets.values() if target.metric is not None}
    surrogate = {trial: study.trials[trial].metric(state.facts.metric) for trial in full}
    measured = fidelity(surrogate, full, state.facts.mode, state.spec.top_k)
    return {
        "coordinate_check": "not run",
        "rank_correlation": measured.spearman,
        "targets_compared": measured.configurations,
        "regret_top_1": measured.regret_top_1,
    }
