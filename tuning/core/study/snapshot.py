"""A study as strict JSON data, and back."""

from typing import Any

from tuning.core.containers import profile_from_json
from tuning.core.errors import SnapshotError, TuningError
from tuning.core.search import LoggedSearcher, make_searcher
from tuning.core.study.facts import facts_from_json
from tuning.core.study.records import Chore, Container, target_from_json, trial_from_json
from tuning.core.study.spec import StudySpec
from tuning.core.study.state import StudyState

FORMAT = 1
_PLAIN = ("exhausted", "cut", "closing", "ended_count", "runs", "profiling_s", "finished")

# what a resumed study may change; everything else would make its trials incomparable
CHANGEABLE = (
    "trials",
    "deadline_s",
    "devices",
    "top_k",
    "eager",
    "fusion",
    "target_epochs",
    "checkpoint_every",
    "transfer_check",
    "compile",
)


def take_snapshot(state: StudyState) -> dict[str, Any]:
    """Return the whole state as data that survives `json.dumps(..., allow_nan=False)`."""
    return {
        "format": FORMAT,
        "spec": state.spec.to_dict(),
        "facts": state.facts.to_json(),
        "trials": [trial.to_json() for trial in state.trials],
        "containers": [container.to_json() for container in state.containers.values()],
        "targets": [target.to_json() for target in state.targets.values()],
        "variants": [target.to_json() for target in state.variants],
        "profiles": [profile.to_json() for profile in state.profiles.values()],
        "profiling": {run: [device, list(shapes)] for run, (device, shapes) in state.profiling.items()},
        "target_step_s": dict(state.target_step_s),
        "target_half_s": dict(state.target_half_s),
        "target_bytes": dict(state.target_bytes),
        "chores": [chore.to_json() for chore in state.chores.values()],
        "transfer": state.transfer,
        "transfer_wanted": state.transfer_wanted,
        "transfer_s": state.transfer_s,
        "devices": list(state.devices),
        "room_s": dict(state.room_s),
        "repacking_s": dict(state.repacking_s),
        "compiling_s": dict(state.compiling_s),
        "compilations": list(state.compilations),
        "stopping": sorted(state.stopping),
        "warnings": list(state.warnings),
        "search_log": [list(entry) for entry in state.searcher.log],
        "ladder": state.ladder.to_json(),
        **{name: getattr(state, name) for name in _PLAIN},
    }


def load_snapshot(snapshot: dict[str, Any], spec: StudySpec | None = None) -> StudyState:
    """Rebuild the state; SnapshotError where this is no snapshot of ours or the spec is of another study."""
    if not isinstance(snapshot, dict) or snapshot.get("format") != FORMAT:
        found = snapshot.get("format") if isinstance(snapshot, dict) else type(snapshot).__name__
        raise SnapshotError(f"snapshot has format {found}, this version reads {FORMAT}")
    try:
        return _load(snapshot, spec)
    except (KeyError, TypeError, ValueError, TuningError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"snapshot cannot be read: {type(error).__name__} {error}") from error


def _load(snapshot: dict[str, Any], spec: StudySpec | None) -> StudyState:
    old = StudySpec.from_dict(snapshot["spec"])
    if spec is not None:
        _check_same_study(old, spec)
    facts = facts_from_json(snapshot["facts"])
    state = StudyState(spec or old, facts)
    for row in snapshot["trials"]:
        state.take(trial_from_json(row))
    state.containers = {row["id"]: Container(**row) for row in snapshot["containers"]}
    state.targets = {row["trial"]: target_from_json(row) for row in snapshot["targets"]}
    state.variants = [target_from_json(row) for row in snapshot.get("variants", ())]
    state.profiles = {row["shape"]: profile_from_json(row) for row in snapshot["profiles"]}
    state.profiling = {
        run: (device, tuple(shapes)) for run, (device, shapes) in snapshot["profiling"].items()
    }
    state.target_step_s = dict(snapshot["target_step_s"])
    # the first releases had no transfer report, lent devices, cost of wider targets, or compiled steps
    state.target_half_s = dict(snapshot.get("target_half_s", {}))
    state.target_bytes = dict(snapshot.get("target_bytes", {}))
    state.chores = {row["run"]: Chore(**row) for row in snapshot.get("chores", ())}
    state.transfer = snapshot.get("transfer")
    state.transfer_wanted = snapshot.get("transfer_wanted", False)
    state.transfer_s = snapshot.get("transfer_s", 0.0)
    state.devices = tuple(snapshot["devices"])
    state.room_s = dict(snapshot.get("room_s", {}))
    state.repacking_s = dict(snapshot["repacking_s"])
    state.compiling_s = dict(snapshot.get("compiling_s", {}))
    state.compilations = list(snapshot.get("compilations", ()))
    state.stopping = set(snapshot["stopping"])
    state.warnings = list(snapshot["warnings"])
    for name in _PLAIN:
        setattr(state, name, snapshot[name])
    search = make_searcher(old.search, facts.space, old.seed, facts.mode, old.duplicates)
    state.searcher = LoggedSearcher(search, snapshot["search_log"])
    state.ladder.load_json(snapshot["ladder"])
    if spec is not None and spec.trials > old.trials and state.finished:
        state.finished = None
    return state


def _check_same_study(old: StudySpec, new: StudySpec) -> None:
    before, after = old.to_dict(), new.to_dict()
    for name, value in before.items():
        if name not in CHANGEABLE and after[name] != value:
            raise SnapshotError(
                f"`{name}` is {after[name]!r} now and was {value!r} in the study to resume; "
                f"only {', '.join(CHANGEABLE)} may change"
            )
