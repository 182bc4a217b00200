"""A study's outcome as the documents that people and programs read."""

import json
from typing import Any

from tuning.core.halving import ranked
from tuning.core.states import TrialState
from tuning.core.study.records import Target
from tuning.core.study.state import StudyState


def best_document(state: StudyState) -> dict[str, Any] | None:
    """Return the best full-width model, or None where there is none yet.

    A target that was cut on its way counts with the metric it had reached.
    """
    if state.transfers:
        target = best_target(state)
        if target is None:
            return None
        trial = state.trials[target.trial]
        surrogate = trial.metric(state.facts.metric)
        config = {**trial.config, **target.values}
        document = _document(trial.number, config, target.metric, surrogate, target.model)
        return document | ({"variant": target.variant} if target.variant else {})
    number = best_full_model(state)
    if number is None:
        return None
    trial = state.trials[number]
    return _document(number, trial.config, trial.metric(state.facts.metric), None, trial.model)


def _document(
    number: int, config: dict[str, Any], metric: float | None, surrogate: float | None, model: str | None
) -> dict[str, Any]:
    return {
        "trial": number,
        "config": config,
        "metric": metric,
        "surrogate_metric": surrogate,
        "model": model,
    }


def best_full_model(state: StudyState) -> int | None:
    """Return the best trial of a study whose trials are full models."""
    completed = {t.number: t.metric(state.facts.metric) for t in state.in_state(TrialState.COMPLETED)}
    order = ranked(completed, state.facts.mode) or _cut_models(state)
    return order[0] if order else None


def best_target(state: StudyState) -> Target | None:
    """Return the target with the best metric, ties by trial; of the second search only a better one."""
    found = [target for target in state.all_targets() if target.metric is not None]
    found.sort(key=lambda target: (target.variant > 0, target.trial))
    order = ranked({index: target.metric for index, target in enumerate(found)}, state.facts.mode)
    return found[order[0]] if order else None


def _cut_models(state: StudyState) -> list[int]:
    """Full models that a deadline or an interrupt found half trained, best first."""
    return [number for number in state.best_order() if state.trials[number].model is not None]


def containers_table(state: StudyState) -> list[dict[str, Any]]:
    """Return every container: size, batch size, device, times, trials, and how it ended."""
    return [
        {
            "id": container.id,
            "size": len(container.trials),
            "batch_size": json.loads(container.shape)["batch_size"],
            "shape": json.loads(container.shape),
            "device": container.device,
            "start_s": container.start_s,
            "end_s": container.end_s,
            "trials": list(container.trials),
            "from_epoch": container.from_epoch,
            "epochs": container.epoch,
            "outcome": container.outcome,
            "note": container.note,
        }
        for container in state.containers.values()
    ]


def fusion_table(state: StudyState) -> dict[str, Any]:
    """Return F by memory, the chosen F and its measured speed-up per trial, by batch size.

    Where several shapes share a batch size, the key also names what else differs.
    """
    sizes = [profile.batch_size for profile in state.profiles.values()]
    table = {}
    for shape, profile in state.profiles.items():
        key = str(profile.batch_size) if sizes.count(profile.batch_size) == 1 else shape
        chosen = min(state.limit_of(shape), max(_largest(state, shape), 1))
        table[key] = {
            "f_memory": profile.memory_limit,
            "f_chosen": chosen,
            "speedup": profile.seconds(1) * chosen / profile.seconds(chosen),
            "steps_per_epoch": profile.steps_per_epoch,
            "batch_size": profile.batch_size,
            "step_s": {str(size): seconds for size, seconds in profile.step_s.items()},
            "predicted_bytes": profile.predicted_bytes(chosen),
            "reason": profile.reason,
        }
    return table


def _largest(state: StudyState, shape: str) -> int:
    return max((len(c.trials) for c in state.containers.values() if c.shape == shape), default=0)


def summary(state: StudyState) -> dict[str, float]:
    """Return where the time went, in seconds: search, target, profiling, repacking, compiling."""
    container_ends = [c.end_s for c in state.containers.values() if c.end_s is not None]
    ends = [t.end_s for t in state.all_targets() if t.end_s is not None]
    search_s = max(container_ends, default=0.0)
    trial_s = sum(trial.device_seconds for trial in state.trials)
    target_s = sum(sum(target.spent.values()) for target in state.all_targets())
    return {
        "search_s": search_s,
        "target_s": max(max(ends, default=search_s) - search_s, 0.0) if state.transfers else 0.0,
        "profiling_s": state.profiling_s,
        "repacking_s": sum(state.repacking_s.values()),
        "compiling_s": sum(state.compiling_s.values()),
        "target_compiling_s": sum(s for run, s in state.compiling_s.items() if run not in state.containers),
        "transfer_check_s": state.transfer_s,
        "device_seconds": trial_s + target_s,
        "trial_device_s": trial_s,
        "target_device_s": target_s,
    }
