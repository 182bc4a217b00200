"""The candidates of a decision side by side: what each one costs, brings, needs and moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from telemetry.core.layouts import Layout, LayoutView, changes, layout_view


@dataclass(frozen=True)
class Candidate:
    """One way to go on. Times are estimated seconds; None where nothing is known or nothing can run.

    `memory` is (rank, bytes needed, bytes there) of the fullest rank, `gain` the speed against doing nothing.
    """

    name: str
    title: str
    iteration_s: float | None
    pause_s: float | None
    moved_bytes: int | None
    memory: tuple[int, int, int] | None
    gain: float | None
    reason: str
    words: Sequence[str]
    view: LayoutView | None
    needs_checkpoint: bool = False
    interval_s: tuple[float, float] | None = None

    @property
    def is_plan(self) -> bool:
        """Whether this is what was proposed."""
        return self.name == "plan"

    @property
    def memory_share(self) -> float | None:
        """How full the fullest rank is."""
        return self.memory[1] / self.memory[2] if self.memory and self.memory[2] else None


def candidates(
    row: Mapping[str, Any], devices: Sequence[Mapping[str, Any]], slowdowns: Mapping[int, float]
) -> list[Candidate]:
    """Return the proposed plan, going on as before, and the other plans, fastest first.

    `row` has a reconfiguration's fields, `alternatives` those of `jobs.core.training.planning.Candidate`.
    """
    before, plan, base = row["before"], row["plan"], row["baseline_iteration_s"]
    chosen = Candidate(
        name="plan",
        title=f"the plan: {row['kind']}",
        iteration_s=row["predicted_iteration_s"],
        pause_s=row["predicted_pause_s"],
        moved_bytes=row["moved_bytes"],
        memory=_fullest(row["memory"], "after_bytes"),
        gain=_gain(base, row["predicted_iteration_s"]),
        reason="",
        words=changes(before, plan),
        view=layout_view(plan, devices, slowdowns, before),
        needs_checkpoint=row["needs_checkpoint"],
        interval_s=_interval(row.get("facts", {}).get("interval_s")),
    )
    keep = Candidate(
        name="keep",
        title="do nothing",
        iteration_s=base,
        pause_s=0.0,
        moved_bytes=0,
        memory=_fullest(row["memory"], "before_bytes"),
        gain=1.0 if base else None,
        reason="" if base else "a rank is dead: the job stands still",
        words=(),
        view=layout_view(before, devices, slowdowns),
    )
    others = [
        _alternative(other, row, devices, slowdowns)
        for other in row["alternatives"]
        if not _is_known(other, before, plan)
    ]
    others.sort(key=lambda c: (c.iteration_s is None, c.iteration_s or 0.0))
    return [chosen, keep, *others]


def _is_known(other: Mapping[str, Any], before: Layout, plan: Layout) -> bool:
    replicas = (other.get("plan") or {}).get("replicas")
    return other.get("name") == "no_action" or replicas in (before.get("replicas"), plan.get("replicas"))


def _alternative(
    other: Mapping[str, Any],
    row: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]],
    slowdowns: Mapping[int, float],
) -> Candidate:
    layout, seconds = other.get("plan"), other.get("predicted_iteration_s")
    return Candidate(
        name=str(other.get("name", "")),
        title=str(other.get("title") or other.get("name", "")),
        iteration_s=seconds,
        pause_s=other.get("predicted_pause_s"),
        moved_bytes=other.get("moved_bytes") if layout else None,
        memory=_fullest(other.get("memory") or [], "after_bytes"),
        gain=_gain(row["baseline_iteration_s"], seconds),
        reason=str(other.get("reason", "")),
        words=changes(row["before"], layout) if layout else (),
        view=layout_view(layout, devices, slowdowns, row["before"]) if layout else None,
        needs_checkpoint=bool(other.get("needs_checkpoint")),
        interval_s=_interval(other.get("predicted_interval_s")),
    )


def _interval(bounds: Any) -> tuple[float, float] | None:
    return (bounds[0], bounds[1]) if isinstance(bounds, list) and len(bounds) == 2 else None


def _gain(base: float | None, time: float | None) -> float | None:
    return base / time if base and time else None


def _fullest(memory: Sequence[Mapping[str, Any]], key: str) -> tuple[int, int, int] | None:
    rows = [(m["rank"], m[key], m["available_bytes"]) for m in memory if m.get("available_bytes")]
    return max(rows, key=lambda r: r[1] / r[2], default=None)
