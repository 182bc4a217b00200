"""Runs the instruction list of one rank for one iteration: chunks of work and the messages between them."""

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from jobs.core.pipeline import Chunk, Kind
from workers.trainer.parallel.data import PackedBatch, Packer
from workers.trainer.parallel.faults import Fault
from workers.trainer.parallel.groups import Arrival, Groups
from workers.trainer.parallel.hooks import BubbleHook
from workers.trainer.parallel.layers import WeightWork
from workers.trainer.parallel.model import ModelChunk
from workers.trainer.parallel.placement import Placement
from workers.trainer.parallel.state import ShardedState

LOOKAHEAD = 2  # instructions whose input may be under way, the present one included
MEMORY = 0.8  # weight of the past in the mean wait of a slot


@dataclass
class Iteration:
    """What all ranks run together: samples of every micro-batch, tokens in all, the seed of its dropout."""

    step: int
    batches: list[list[int]]
    tokens: int
    noise: int


@dataclass
class Record:
    """What one rank did in one iteration.

    `loss` is its part of the token-weighted mean. Samples and tokens stand with the first shard of the first
    stage, the loss with the first shard of the last, so that sums over all ranks count each once.
    """

    loss: float = 0.0
    tokens: int = 0
    samples: list[int] = field(default_factory=list)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    bubbles: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Flight:
    """A micro-batch inside a model chunk, between its forward and its weight gradient."""

    batch: PackedBatch
    x_TD: Tensor
    y: Tensor
    work: WeightWork


class Waits:
    """Measures waits, tells the hook of them and remembers how long each slot usually takes."""

    def __init__(self, hook: BubbleHook | None) -> None:
        self.hook = hook
        self.expected_s: dict[int, float] = {}

    @contextmanager
    def slot(self, slot: int, before: str | None, record: Record) -> Any:
        """Around one wait."""
        usual_s = self.expected_s.get(slot, 0.0)
        if self.hook is not None:
            self.hook.on_bubble_enter(slot, usual_s)
        begun = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - begun
            if self.hook is not None:
                self.hook.on_bubble_exit(slot)
        old = self.expected_s.get(slot, seconds)
        self.expected_s[slot] = MEMORY * old + (1 - MEMORY) * seconds
        record.bubbles.append({"slot": slot, "before": before, "seconds": seconds})


class Runner:
    """One rank's share of a replica's pipeline."""

    def __init__(
        self,
        placement: Placement,
        me: int,
        state: ShardedState,
        groups: Groups,
        packer: Packer,
        fault: Fault,
        waits: Waits,
        device: torch.device,
    ) -> None:
        self.seat, self.device = placement.seats[me], device
        self.packer, self.fault, self.waits = packer, fault, waits
        self.schedule = placement.schedules[self.seat.replica]
        self.order = self.schedule.ranks[self.seat.stage]
        self.stages = placement.groups[self.seat.replica]
        self.mine = placement.microbatches(self.seat.replica)
        self.world = groups.of(placement.working)
        group = groups.of(self.seat.peers)
        chunks = placement.chunk_layers(self.seat.replica)
        self.models = [
            ModelChunk(placement.spec, chunks[self._virtual(chunk)], state, group)
            for chunk in range(self.schedule.model_chunks)
        ]
        self.width = placement.spec.width

    def run(self, iteration: Iteration) -> Record:
        """Run every instruction; gradients are added to the state's buffers. Abandoned if a peer is lost."""
        self.iteration, self.record = iteration, Record()
        self._flights: dict[tuple[int, int], _Flight] = {}
        self._handed: dict[tuple[Kind, int, int], Tensor] = {}
        self._arrivals: dict[int, Arrival] = {}
        steps = {Kind.FORWARD: self._forward, Kind.BACKWARD: self._backward, Kind.WEIGHT: self._weight}
        for index, chunk in enumerate(self.order):
            for ahead in range(index, min(index + LOOKAHEAD, len(self.order))):
                self._expect(ahead)
            arrived = self._arrived(index, chunk)
            self._timed(chunk, steps[chunk.kind], arrived)
        self.world.settle()
        return self.record

    @property
    def computes_loss(self) -> bool:
        """Whether this rank holds the last layer."""
        return any(model.last for model in self.models)

    def forget(self) -> None:
        """Drop everything under way, and with it the connections it refers to."""
        self._flights, self._handed, self._arrivals = {}, {}, {}

    def _virtual(self, model_chunk: int) -> int:
        return self.schedule.virtual_stage(self.seat.stage, model_chunk)

    def _tokens(self, chunk: Chunk) -> int:
        return self.packer.tokens(self.iteration.batches[self.mine[chunk.microbatch]])

    def _tag(self, kind: Kind, microbatch: int, virtual_stage: int) -> int:
        return (virtual_stage * 2 + (kind is Kind.BACKWARD)) * len(self.mine) + microbatch

    def _expect(self, index: int) -> None:
        """Begin to receive what an instruction needs from another rank."""
        chunk = self.order[index]
        source = self.schedule.receives_from(self.seat.stage, chunk)
        if index in self._arrivals or source is None or source[0] == self.seat.stage:
            return
        senders = self.stages[source[0]]
        tag = self._tag(chunk.kind, chunk.microbatch, self._virtual(chunk.model_chunk))
        shape = (self._tokens(chunk), self.width)
        self._arrivals[index] = self.world.receive(shape, senders[self.seat.shard % len(senders)], tag)

    def _arrived(self, index: int, chunk: Chunk) -> Tensor | None:
        """What an instruction needs from elsewhere, waiting for it where it must."""
        arrival = self._arrivals.pop(index, None)
        if arrival is not None:
            with self.waits.slot(index, f"{chunk.kind}{chunk.microbatch}", self.record):
                return arrival.wait()
        return self._handed.pop((chunk.kind, chunk.microbatch, self._virtual(chunk.model_chunk)), None)

    def _deliver(self, chunk: Chunk, tensor: Tensor) -> None:
        """Hand an instruction's output on: to this rank's other chunk, or to its shards' partners."""
        target = self.schedule.sends_to(self.seat.stage, chunk)
        if target is None:
            return
        virtual = self.schedule.virtual_stage(*target)
        if target[0] == self.seat.stage:
            self._handed[chunk.kind, chunk.microbatch, virtual] = tensor.detach()
            return
        # what leaves a stage is the same on all its shards, so each partner takes it from one of them
        for shard, receiver in enumerate(self.stages[target[0]]):
            if shard % self.seat.degree == self.seat.shard:
                self.world.send(tensor, receiver, self._tag(chunk.kind, chunk.microbatch, virtual))

    def _timed(
        self, chunk: Chunk, step: Callable[[Chunk, Tensor | None], None], tensor: Tensor | None
    ) -> None:
        wall, cpu = time.monotonic(), time.thread_time()
        step(chunk, tensor)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        throttled_s = self.fault.suffer(time.monotonic() - wall)
        batch = self._last_batch
        self.record.chunks.append(
            {
                "type": str(chunk.kind),
                "microbatch": batch.index,
                "stage": self._virtual(chunk.model_chunk),
                "seconds": time.monotonic() - wall,
                "cpu_seconds": time.thread_time() - cpu,
                "throttled_seconds": throttled_s,
                "tokens": batch.tokens,
                "sum_squared_lengths": batch.sum_squared_lengths,
            }
        )

    def _forward(self, chunk: Chunk, x_TD: Tensor | None) -> None:
        model, work = self.models[chunk.model_chunk], WeightWork()
        number = self.mine[chunk.microbatch]
        batch = self.packer.batch(number, self.iteration.batches[number], self.device)
        if x_TD is None:
            x_TD = model.embed(batch)
            if self.seat.shard == 0:
                self.record.samples += batch.samples
                self.record.tokens += batch.tokens
        x_TD = x_TD.detach().requires_grad_()
        y = model.forward(x_TD, batch, work, self.iteration.noise)
        if model.last:
            y = model.loss(y, batch, work, 1.0 / self.iteration.tokens)
            if self.seat.shard == 0:
                self.record.loss += float(y.detach())
        else:
            self._deliver(chunk, y)
        self._flights[chunk.model_chunk, chunk.microbatch] = _Flight(batch, x_TD, y, work)
        self._last_batch = batch

    def _backward(self, chunk: Chunk, grad_TD: Tensor | None) -> None:
        model = self.models[chunk.model_chunk]
        flight = self._flights[chunk.model_chunk, chunk.microbatch]
        torch.autograd.backward(flight.y, grad_TD)
        grad_in_TD = flight.x_TD.grad
        assert grad_in_TD is not None
        flight.y = flight.x_TD = torch.empty(0)  # the activations are no longer needed
        if model.first:
            batch = flight.batch
            flight.work.add(lambda: model.embedding_gradient(batch, grad_in_TD))
        else:
            self._deliver(chunk, grad_in_TD)
        self._last_batch = flight.batch
        if not self.schedule.splits_backward:
            self._weight(chunk, None)

    def _weight(self, chunk: Chunk, _: Tensor | None) -> None:
        flight = self._flights.pop((chunk.model_chunk, chunk.microbatch))
        flight.work.run()
        self._last_batch = flight.batch
