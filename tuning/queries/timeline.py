"""What ran when on which device: containers of trials, the targets, profiles and transfer checks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.models import Job
from tuning.models import Container, Target

Interval = dict[str, Any]
LOST = ("failed", "lost")
NAMED = 6
CHORES = {"profile": "profiling", "check": "transfer check"}
_COLUMNS = ("run", "device_label", "start_s", "end_s", "outcome", "trials", "from_epoch", "epochs")


def timeline_of(job: Job) -> dict[str, Any]:
    """Return the lanes of a study, one per device; `end_s` is null for what still runs.

    Kinds: `trial` (one alone), `fused` (several in one module), `failed`, `target`, `profile` and `check`.
    A container whose trials come from others names them under `from`; `change` says what that was: `split`
    (they come from a container that others left, too), `merge` (from several), or `moved`.
    """
    lanes: dict[str, list[Interval]] = {}
    for interval in _containers(job):
        lanes.setdefault(interval.pop("device"), []).append(interval)
    for chore in job.study.spending.get("chores", ()):
        lanes.setdefault(chore["device"], []).append(_chore(chore))
    for target in Target.objects.filter(job=job, start_s__isnull=False).select_related("trial"):
        for label in (target.device_label or "target", *target.beside):
            lanes.setdefault(label, []).append(_target(target))
    for rows in lanes.values():
        rows.sort(key=lambda row: row["start_s"])
    ordered = sorted(lanes.items(), key=lambda lane: _natural(lane[0]))
    return {"lanes": [{"id": label, "label": label, "intervals": rows} for label, rows in ordered]}


@dataclass
class _Paths:
    """Which container each trial was in last, and how many containers took trials from each."""

    last: dict[int, str] = field(default_factory=dict)
    heirs: dict[str, set[str]] = field(default_factory=dict)

    def sources(self, run: str, trials: Sequence[int]) -> list[str]:
        """Return where these trials come from, and remember where they are."""
        found = list(dict.fromkeys(self.last[trial] for trial in trials if trial in self.last))
        for source in found:
            self.heirs.setdefault(source, set()).add(run)
        self.last.update(dict.fromkeys(trials, run))
        return found


def _containers(job: Job) -> list[Interval]:
    # Plain columns: model objects of 50,000 containers would take seconds.
    rows = Container.objects.filter(job=job).order_by("start_s", "id").values_list(*_COLUMNS)
    paths, found = _Paths(), []
    for run, device, start_s, end_s, outcome, trials, from_epoch, epochs in rows.iterator(chunk_size=10_000):
        interval = _container(run, start_s, end_s, outcome, trials)
        interval |= {"device": device, "from": paths.sources(run, trials), "epochs": [from_epoch, epochs]}
        found.append(interval)
    for interval in found:
        interval["change"] = _change(interval, paths)
        interval["label"] += _origin(interval)
    return found


def _change(interval: Interval, paths: _Paths) -> str | None:
    sources = interval["from"]
    if len(sources) > 1:
        return "merge"
    if sources and len(paths.heirs[sources[0]]) > 1:
        return "split"
    return "moved" if sources else None


def _origin(interval: Interval) -> str:
    words = {"merge": "merged from", "split": "split off", "moved": "goes on from"}
    if interval["change"] is None:
        return ""
    return f"; {words[interval['change']]} {', '.join(interval['from'][:NAMED])}"


def _container(
    run: str, start_s: float, end_s: float | None, outcome: str, trials: Sequence[int]
) -> Interval:
    size = len(trials)
    names = ", ".join(f"#{n}" for n in trials[:NAMED]) + (", …" if size > NAMED else "")
    return {
        "id": run,
        "start_s": start_s,
        "end_s": end_s,
        "kind": "failed" if outcome in LOST else "fused" if size > 1 else "trial",
        "label": f"{run}: {size} trials fused: {names}" if size > 1 else f"{run}: trial {names}",
        "trials": list(trials),
    }


def _chore(chore: dict[str, Any]) -> Interval:
    return {
        "id": chore["run"],
        "start_s": chore["start_s"],
        "end_s": chore["end_s"],
        "kind": chore["kind"],
        "label": CHORES.get(chore["kind"], chore["kind"]),
        "trials": [],
    }


def _target(target: Target) -> Interval:
    return {
        "start_s": target.start_s,
        "end_s": target.end_s,
        "kind": "target",
        "label": f"target of trial #{target.trial.number}{_company(target)}",
        "trials": [target.trial.number],
    }


def _company(target: Target) -> str:
    return f", data-parallel on {1 + len(target.beside)} devices" if target.beside else ""


def _natural(label: str) -> tuple[str, int]:
    head = label.rstrip("0123456789")
    return head, int(label[len(head) :] or 0)
