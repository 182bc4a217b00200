"""Layouts of training jobs as people see them: which stage has which layers and ranks, and what changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Layout = Mapping[str, Any]
SLOW = 1.2  # a rank that needs this many times its healthy time is marked


@dataclass(frozen=True)
class RankView:
    """One rank of a stage: its name, its device, and how slow it is (1 is healthy, None unknown)."""

    name: str
    device: str = ""
    slowdown: float | None = None

    @property
    def is_slow(self) -> bool:
        """Whether the rank is marked."""
        return self.slowdown is not None and self.slowdown >= SLOW


@dataclass(frozen=True)
class StageView:
    """Consecutive layers, counted from 1, on a tensor-parallel group."""

    first: int
    last: int
    ranks: tuple[RankView, ...]
    changed: bool = False

    @property
    def layers(self) -> int:
        """How many layers it owns."""
        return self.last - self.first + 1

    @property
    def span(self) -> str:
        """Its layers in words."""
        return f"layer {self.first}" if self.first == self.last else f"layers {self.first}–{self.last}"

    @property
    def is_slow(self) -> bool:
        """Whether one of its ranks is slow: the group waits for it."""
        return any(rank.is_slow for rank in self.ranks)


@dataclass(frozen=True)
class ReplicaView:
    """One pipeline and the micro-batches it runs."""

    microbatches: int
    stages: tuple[StageView, ...]
    changed: bool = False


@dataclass(frozen=True)
class LayoutView:
    """A whole layout; ranks that do not work stand in `idle` and `dead`."""

    replicas: tuple[ReplicaView, ...]
    idle: tuple[RankView, ...]
    dead: tuple[RankView, ...]

    @property
    def in_words(self) -> str:
        """The layout in one line."""
        if not self.replicas:
            return "no layout yet"
        stages = sorted({len(replica.stages) for replica in self.replicas})
        widths = sorted({len(stage.ranks) for replica in self.replicas for stage in replica.stages})
        words = f"{_count(len(self.replicas), 'replica')} of {_range(stages, 'stage')}"
        if widths != [1]:
            words += f", tensor parallel {_numbers(widths)}"
        working = sum(len(stage.ranks) for replica in self.replicas for stage in replica.stages)
        return f"{words}, {_count(working, 'rank')}"


def layout_view(
    layout: Layout,
    devices: Sequence[Mapping[str, Any]] = (),
    slowdowns: Mapping[int, float] | None = None,
    before: Layout | None = None,
) -> LayoutView:
    """Return a layout document for drawing; what differs from `before` is marked as changed."""

    def rank(name: str) -> RankView:
        index = int(name[1:]) if name[1:].isdigit() else -1
        label = str(devices[index].get("label") or "") if 0 <= index < len(devices) else ""
        return RankView(name, label, (slowdowns or {}).get(index))

    known = _stages(before) if before else {}
    old = [replica.get("microbatches") for replica in (before or {}).get("replicas", [])]
    replicas = []
    for number, replica in enumerate(layout.get("replicas", [])):
        first, stages = 1, []
        for stage in replica["stages"]:
            last = first + stage["layers"] - 1
            same = known.get(tuple(stage["devices"])) == (first, last)
            changed = before is not None and not same
            stages.append(StageView(first, last, tuple(map(rank, stage["devices"])), changed))
            first = last + 1
        count = replica.get("microbatches", 0)
        moved = before is not None and (number >= len(old) or old[number] != count)
        replicas.append(ReplicaView(count, tuple(stages), moved))
    idle, dead = (tuple(rank(name) for name in layout.get(key, [])) for key in ("idle", "dead"))
    return LayoutView(tuple(replicas), idle, dead)


def changes(before: Layout, after: Layout) -> list[str]:
    """Return in words what a plan changes, most telling first; nothing for the same layout."""
    old, new = _owners(before), _owners(after)
    said = []
    for name in sorted(old.keys() - new.keys(), key=_by_number):
        fate = "is taken out as dead" if name in after.get("dead", []) else "becomes idle"
        said.append(f"{name} {fate}")
    said += [
        f"{name} begins to work on {_layers(new[name])}"
        for name in sorted(new.keys() - old.keys(), key=_by_number)
    ]
    for name in sorted(old.keys() & new.keys(), key=_by_number):
        if old[name] != new[name]:
            said.append(f"{name} has {_layers(new[name])} instead of {_layers(old[name])}")
    groups = {tuple(sorted(group)) for group in _stages(before)}
    for group in _stages(after):
        if len(group) > 1 and tuple(sorted(group)) not in groups:
            said.append(f"{', '.join(group)} form one tensor-parallel group")
    return said + _microbatch_changes(before, after)


def _microbatch_changes(before: Layout, after: Layout) -> list[str]:
    old = [replica.get("microbatches", 0) for replica in before.get("replicas", [])]
    new = [replica.get("microbatches", 0) for replica in after.get("replicas", [])]
    if len(old) != len(new):
        return [f"{_count(len(new), 'replica')} instead of {len(old)}, with {_numbers(new)} micro-batches"]
    return [
        f"replica {index} runs {_count(b, 'micro-batch', 'micro-batches')} instead of {a}"
        for index, (a, b) in enumerate(zip(old, new, strict=True))
        if a != b
    ]


def _stages(layout: Layout) -> dict[tuple[str, ...], tuple[int, int]]:
    """Every group and the layers it owns, counted from 1."""
    found = {}
    for replica in layout.get("replicas", []):
        first = 1
        for stage in replica["stages"]:
            found[tuple(stage["devices"])] = (first, first + stage["layers"] - 1)
            first += stage["layers"]
    return found


def _owners(layout: Layout) -> dict[str, tuple[int, int]]:
    return {name: span for group, span in _stages(layout).items() for name in group}


def _layers(span: tuple[int, int]) -> str:
    return f"layer {span[0]}" if span[0] == span[1] else f"layers {span[0]}–{span[1]}"


def _by_number(name: str) -> tuple[int, str]:
    return (int(name[1:]) if name[1:].isdigit() else 0, name)


def _count(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _range(values: Sequence[int], word: str) -> str:
    return _count(values[0], word) if len(values) == 1 else f"{values[0]} to {values[-1]} {word}s"


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
