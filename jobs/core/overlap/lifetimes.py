"""Live bytes as a function of what has been issued, not of the order: what the searches prune by."""

from dataclasses import dataclass
from functools import cached_property

from jobs.core.overlap.graph import Graph

Bucket = tuple[int, ...]
Buckets = frozenset[Bucket]


@dataclass(frozen=True)
class MemoryState:
    """What has been issued (one bit a node), the bytes alive after it, and the buckets not yet released."""

    issued: int = 0
    live_bytes: float = 0
    buckets: Buckets = frozenset()


@dataclass(frozen=True)
class Lifetimes:
    """Releases of storages by sets of issued nodes; agrees with `memory.release_steps` for every order."""

    graph: Graph

    @cached_property
    def _touch_mask(self) -> list[int]:
        """Of each storage: its producer and every node that needs any alias of it."""
        masks = [1 << index for index in range(len(self.graph.nodes))]
        for index, storages in enumerate(self.graph.reads):
            for storage in storages:
                masks[storage] |= 1 << index
        return masks

    @cached_property
    def _comms_reading(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.graph.nodes]
        for comm in self.graph.waits_of:
            for storage in self.graph.reads[comm]:
                found[storage].append(comm)
        return found

    @cached_property
    def _wait_mask(self) -> dict[int, int]:
        return {comm: sum(1 << wait for wait in waits) for comm, waits in self.graph.waits_of.items()}

    @cached_property
    def _pinned(self) -> set[int]:
        """Storages that stay to the end."""
        kept = {storage for output in self.graph.outputs for storage in self.graph.roots[output]}
        return kept | {comm for comm, waits in self.graph.waits_of.items() if not waits}

    def after(self, state: MemoryState, step: Bucket) -> tuple[MemoryState, float]:
        """Issue a step; return the new state and the bytes alive while the step runs."""
        nodes = self.graph.nodes
        during = state.live_bytes + sum(self.graph.births_bytes[member] for member in step)
        issued = state.issued
        for member in step:
            issued |= 1 << member
        buckets = state.buckets | {step} if len(step) > 1 else state.buckets
        bucket_of = {member: bucket for bucket in buckets for member in bucket}
        affected = self._affected(step, bucket_of)
        whole = bucket_of if self.graph.bucket_is_one_storage else {}
        live = during
        for unit in {whole.get(storage, (storage,)) for storage in affected}:
            if self._released(unit, issued, bucket_of) and not self._released(unit, state.issued, bucket_of):
                live -= sum(nodes[member].size_bytes for member in unit)
        touched = {bucket_of[storage] for storage in affected if storage in bucket_of}
        buckets -= {bucket for bucket in touched if self._released(bucket, issued, bucket_of)}
        return MemoryState(issued, live, buckets), during

    def _affected(self, step: Bucket, bucket_of: dict[int, Bucket]) -> set[int]:
        """The storages whose release this step may bring about."""
        found: set[int] = set(step)
        for member in step:
            found.update(self.graph.reads[member])
            for comm in self.graph.waits_for[member]:
                for partner in bucket_of.get(comm, (comm,)):
                    found.update(self.graph.reads[partner])
        return {storage for storage in found if self.graph.roots[storage] == (storage,)}

    def _released(self, unit: Bucket, issued: int, bucket_of: dict[int, Bucket]) -> bool:
        for storage in unit:
            if storage in self._pinned or self._touch_mask[storage] & ~issued:
                return False
            for comm in self._comms_reading[storage]:
                waits = 0
                for partner in bucket_of.get(comm, (comm,)):
                    waits |= self._wait_mask[partner]
                if not waits & issued:
                    return False
        return True
