"""Good layouts fast, better ones while time lasts; no proof."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobs.core.layout.allocation import level, level_out, share
from jobs.core.layout.drafts import (
    Group,
    NodeKind,
    deal_evenly,
    deal_in_turn,
    groups_of,
    node_kinds,
    repairs,
    replica_counts,
)
from jobs.core.layout.instance import Layout, Replica, Stage
from jobs.core.layout.splits import Kinds, Layers, SplitSearch
from jobs.core.layout.work import Work

REFINED_DRAFTS = 6
Pipes = list[list[Group]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A whole layout and its exact iteration time."""

    time: float
    layout: Layout


class AnytimeSearch:
    """Drafts layouts, estimates them, refines the best."""

    def __init__(self, work: Work, keep_going: Callable[[], bool]) -> None:
        self.work = work
        self.instance = work.instance
        self.keep_going = keep_going
        self.splits = SplitSearch(work)
        self._ranks = {device.id: index for index, device in enumerate(self.instance.devices)}
        self._estimates: dict[tuple[Kinds, int], tuple[float, float] | None] = {}

    def run(
        self, report: Callable[[Candidate], None], keep_drafting: Callable[[], bool] = lambda: True
    ) -> None:
        """Draft while `keep_drafting`, then hand the best, finished, to `report`; the first draft at once."""
        drafts: list[tuple[float, int, Pipes]] = []
        for pipes in self._drafts():
            time = self.estimate(pipes)
            if time is not None:
                drafts.append((time, len(drafts), pipes))
                if len(drafts) == 1:
                    self._report(pipes, report)
            if not (keep_drafting() and self.keep_going()):
                break
        seen: set[tuple[tuple[Kinds, int], ...]] = set()
        for _, _, pipes in sorted(drafts, key=lambda draft: draft[:2]):
            counted = Counter(tuple(sorted(group.kind for group in pipe)) for pipe in pipes)
            key = tuple(sorted(counted.items()))
            if key not in seen:
                seen.add(key)
                self._report(pipes, report)
            if len(seen) >= REFINED_DRAFTS or not self.keep_going():
                break

    def _report(self, pipes: Pipes, report: Callable[[Candidate], None]) -> None:
        candidate = self.finish(pipes)
        if candidate is not None:
            report(candidate)

    def _drafts(self) -> Iterator[Pipes]:
        yield from self._repaired()
        kinds = node_kinds(self.work)
        if not kinds:
            return
        usual = kinds[0]
        for cut in usual.menu:
            yield from self._around(kinds, cut)

    def _around(self, kinds: list[NodeKind], cut: list[tuple[int, int]]) -> Iterator[Pipes]:
        """Deal all nodes, the usual ones cut as given; then vary the cut of every other kind in turn."""
        usual, others = kinds[0], kinds[1:]
        base = groups_of(usual, cut, self.work)
        menus = [[groups_of(kind, other, self.work) for other in kind.menu] + [[]] for kind in others]
        chosen = [max(menu, key=lambda rows: sum(group.kind.rate for group in rows)) for menu in menus]
        best: tuple[float, list[list[Group]]] | None = None

        def deals(rows: Sequence[list[Group]]) -> Iterator[Pipes]:
            groups = base + [group for part in rows for group in part]
            rate = base[0].kind.rate if base else max((group.kind.rate for group in groups), default=0.0)
            for replicas in replica_counts(self.work, len(groups), rate) if groups else ():
                yield deal_evenly(groups, replicas, self.work.layers)
                yield deal_in_turn(groups, replicas, self.work.layers)

        for index, menu in [(0, [chosen[0]]), *enumerate(menus)] if menus else [(-1, [[]])]:
            for rows in menu:
                trial = [rows if i == index else part for i, part in enumerate(chosen)]
                for pipes in deals(trial):
                    time = self.estimate(pipes)
                    if time is not None and (best is None or time < best[0]):
                        best = (time, trial)
                    yield pipes
            if best is not None:
                chosen = best[1]

    def _repaired(self) -> Iterator[Pipes]:
        """The current layout with only its damaged stages cut anew, each replica by itself."""
        current = self.instance.current
        if current is None or self.instance.replicas not in (None, len(current.replicas)):
            return
        repaired: Pipes = []
        for replica in current.replicas:
            stages = [[self.instance.device(name) for name in stage.devices] for stage in replica.stages]
            options = [row for row in repairs(stages, self.work) if 0 < len(row) <= self.work.layers]
            share = round(self.work.microbatches / len(current.replicas))
            scored = [(self._line(row, share), row) for row in options]
            possible = [
                (first + each * replica.microbatches, i, row)
                for i, (line, row) in enumerate(scored)
                if line is not None
                for first, each in [line]
            ]
            if not possible:
                return
            repaired.append(min(possible, key=lambda option: option[:2])[2])
        yield repaired

    def _line(self, pipe: Sequence[Group], share: int) -> tuple[float, float] | None:
        """First micro-batch and each further one, split as suits about so many; None: no room."""
        kinds = tuple(sorted((group.kind for group in pipe), reverse=True))
        if (kinds, share) not in self._estimates:
            self._estimates[kinds, share] = self._best_line(kinds, share) if kinds else None
        return self._estimates[kinds, share]

    def _best_line(self, kinds: Kinds, share: int) -> tuple[float, float] | None:
        lean = self.splits.lean(kinds, share) if self.work.uniform and self.work.total else None
        if lean is not None:
            return self.splits.line(*lean)
        layers = self.splits.quick(kinds)
        return None if layers is None else self.splits.line(kinds, layers)

    def _lines(self, pipes: Pipes) -> list[tuple[float, float]] | None:
        """A line for every replica; None where one has no room for the model."""
        mean = max(1, round(self.work.microbatches / len(pipes)))
        lines = [self._line(pipe, mean) for pipe in pipes]
        known = [line for line in lines if line is not None]
        return known if len(known) == len(lines) else None

    def estimate(self, pipes: Pipes) -> float | None:
        """An upper bound on the iteration time, None where a replica has no room for the model."""
        known = self._lines(pipes)
        if known is None or len(known) > self.work.microbatches:
            return None
        counts = share(known, self.work.microbatches)
        return max(first + (count - 1) * each for (first, each), count in zip(known, counts, strict=True))

    def smooth(self, pipes: Pipes) -> float | None:
        """As `estimate`, with micro-batches that may be divided: it falls with every gain of any replica."""
        known = self._lines(pipes)
        if known is None or len(known) > self.work.microbatches:
            return None
        return level(known, self.work.microbatches)

    def finish(self, pipes: Pipes) -> Candidate | None:
        """Order, split and deal exactly; weak groups that only slow their replica down are dropped."""
        lines = self._lines(pipes)
        if lines is None:
            return None
        counts = share(lines, self.work.microbatches)
        arranged: dict[tuple[Kinds, int], tuple[Kinds, Layers]] = {}
        built: list[tuple[list[Group], Kinds, Layers]] = []
        for pipe, count in zip(pipes, counts, strict=True):
            kinds = tuple(sorted((group.kind for group in pipe), reverse=True))
            if (kinds, count) not in arranged:
                found = self._arrange(kinds, count)
                if found is None:
                    return None
                arranged[kinds, count] = found
            built.append((pipe, *arranged[kinds, count]))
        return self.level(built, counts)

    def level(self, built: Sequence[tuple[list[Group], Kinds, Layers]], counts: Sequence[int]) -> Candidate:
        """Deal micro-batches exactly over finished pipelines and write the layout down."""
        counts, time = level_out(
            list(counts), lambda index, count: self.splits.time(built[index][1], built[index][2], count)
        )
        replicas = tuple(
            Replica(count, self._stages(pipe, kinds, layers))
            for (pipe, kinds, layers), count in zip(built, counts, strict=True)
        )
        return Candidate(time, Layout(replicas))

    def _arrange(self, kinds: Kinds, microbatches: int) -> tuple[Kinds, Layers] | None:
        best = self._arrange_lean(kinds, microbatches)
        while kinds:
            found = self.splits.arrange(kinds, microbatches, self.keep_going)
            if found is not None:
                order, layers = found
                layers = self.splits.climb(order, layers, microbatches, self.keep_going)
                time = self.splits.time(order, layers, microbatches)
                if best is not None and time >= best[0]:
                    break
                best = (time, order, layers)
            # Once more without the weakest group; among equal ones only transfers could make that pay.
            if (kinds[0] == kinds[-1] and self.work.transfer_s == 0) or found is None:
                break
            kinds = kinds[:-1]
        return None if best is None else best[1:]

    def _arrange_lean(self, kinds: Kinds, microbatches: int) -> tuple[float, Kinds, Layers] | None:
        lean = self.splits.lean(kinds, microbatches) if self.work.uniform and self.work.total else None
        if lean is None:
            return None
        order, layers = lean
        layers = self.splits.climb(order, layers, microbatches, self.keep_going)
        return self.splits.time(order, layers, microbatches), order, layers

    def _stages(self, pipe: Sequence[Group], kinds: Kinds, layers: Layers) -> tuple[Stage, ...]:
        waiting: dict[object, list[Group]] = {}
        for group in reversed(pipe):
            waiting.setdefault(group.kind, []).append(group)
        stages = []
        for kind, count in zip(kinds, layers, strict=True):
            members = sorted(waiting[kind].pop().devices, key=lambda device: self._ranks[device.id])
            stages.append(Stage(tuple(device.id for device in members), count))
        return tuple(stages)
