"""The best layers and micro-batches for groups whose order is given."""

from collections.abc import Callable, Sequence
from math import comb

from jobs.core.layout.allocation import level_out, share
from jobs.core.layout.instance import Layout, Replica, Stage
from jobs.core.layout.pipelines import MOST_LISTED, PipelineSearch
from jobs.core.layout.splits import Kinds, Layers, SplitSearch
from jobs.core.layout.work import Work


class FixedOrder:
    """Splits and deals over the stages of a layout without touching groups or their order."""

    def __init__(self, work: Work, splits: SplitSearch, keep_going: Callable[[], bool]) -> None:
        self.work = work
        self.splits = splits
        self.keep_going = keep_going
        self._best: dict[tuple[Kinds, int], Layers | None] = {}

    def kinds(self, replica: Replica) -> Kinds:
        """Group types of a replica of living devices, in order."""
        instance = self.work.instance
        return tuple(
            self.work.group_type([instance.device(name) for name in stage.devices])
            for stage in replica.stages
        )

    def best_layers(self, kinds: Kinds, microbatches: int) -> Layers | None:
        """The best split: exact where few enough are possible, else good; None if the model has no room."""
        key = (kinds, microbatches)
        if key not in self._best:
            self._best[key] = self._search(kinds, microbatches)
        return self._best[key]

    def _search(self, kinds: Kinds, microbatches: int) -> Layers | None:
        if not kinds or len(kinds) > self.work.layers or not all(map(self.work.useful, kinds)):
            return None
        if comb(self.work.layers - 1, len(kinds) - 1) <= MOST_LISTED:
            found = PipelineSearch(self.work, kinds, microbatches, keep_order=True).best(float("inf"))
            return None if found is None else found.layers
        layers = self.splits.quick(kinds)
        return None if layers is None else self.splits.climb(kinds, layers, microbatches, self.keep_going)

    def rebalanced(self, replicas: Sequence[Replica]) -> Layout:
        """Same groups and layers, the best micro-batches: optimal."""
        rows = [
            (self.kinds(replica), tuple(stage.layers for stage in replica.stages)) for replica in replicas
        ]
        lines = [self.splits.line(kinds, layers) for kinds, layers in rows]
        counts, _ = level_out(
            share(lines, self.work.microbatches), lambda index, count: self.splits.time(*rows[index], count)
        )
        return _layout(replicas, [layers for _, layers in rows], counts)

    def repartitioned(self, replicas: Sequence[Replica], rebalance: bool = True) -> Layout | None:
        """Same groups, the best layers per replica, and the best micro-batches unless they shall stay."""
        kinds = [self.kinds(replica) for replica in replicas]
        counts = [replica.microbatches for replica in replicas]
        if any(self.best_layers(row, count) is None for row, count in zip(kinds, counts, strict=True)):
            return None
        if rebalance:
            first = [self._layers(row, count) for row, count in zip(kinds, counts, strict=True)]
            lines = [self.splits.line(row, layers) for row, layers in zip(kinds, first, strict=True)]
            counts, _ = level_out(
                share(lines, self.work.microbatches),
                lambda index, count: self.splits.time(kinds[index], self._layers(kinds[index], count), count),
            )
        return _layout(
            replicas, [self._layers(row, count) for row, count in zip(kinds, counts, strict=True)], counts
        )

    def _layers(self, kinds: Kinds, microbatches: int) -> Layers:
        layers = self.best_layers(kinds, microbatches)
        assert layers is not None  # whether the model fits does not depend on the micro-batches
        return layers


def _layout(replicas: Sequence[Replica], layers: Sequence[Layers], counts: Sequence[int]) -> Layout:
    return Layout(
        tuple(
            Replica(count, tuple(Stage(s.devices, n) for s, n in zip(replica.stages, row, strict=True)))
            for replica, row, count in zip(replicas, layers, counts, strict=True)
        )
    )
