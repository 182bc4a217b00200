"""The schedule of a layout, simulated chunk by chunk for people and pages."""

from collections.abc import Sequence
from typing import Any

from jobs.core.errors import ImpossibleSchedule, MalformedInstance
from jobs.core.layout.costs import group_rate
from jobs.core.layout.instance import Instance, Layout, Replica
from jobs.core.pipeline import Durations, Schedule, Timeline, build_schedule, simulate

WEIGHT_PART = 0.5  # share of the backward pass that is the weight gradient, where a schedule splits it


def simulate_layout(
    instance: Instance,
    layout: Layout,
    schedule: str = "1f1b",
    model_chunks: int = 2,
    weight_part: float = WEIGHT_PART,
) -> list[Timeline]:
    """One timeline per replica; equal replicas are simulated once and share it.

    Raises ImpossibleSchedule where the schedule does not fit a replica, MalformedInstance for dead devices.
    """
    known: dict[tuple[object, ...], Timeline] = {}
    timelines = []
    for index, replica in enumerate(layout.replicas):
        rates = _rates(instance, replica, index)
        layers = tuple(stage.layers for stage in replica.stages)
        key = (tuple(rates), layers, replica.microbatches)
        if key not in known:
            try:
                lists = build_schedule(schedule, len(rates), replica.microbatches, model_chunks)
                durations = chunk_durations(instance, lists, rates, layers, weight_part)
                known[key] = simulate(lists, durations, instance.transfer_s)
            except ImpossibleSchedule as error:
                raise ImpossibleSchedule(f"replica {index}: {error}") from None
        timelines.append(known[key])
    return timelines


def _rates(instance: Instance, replica: Replica, index: int) -> list[float]:
    rates = []
    for position, stage in enumerate(replica.stages):
        devices = [instance.device(name) for name in stage.devices]
        dead = [device.id for device in devices if device.speed == 0]
        if dead:
            raise MalformedInstance(f"replicas[{index}].stages[{position}]: device {dead[0]!r} is dead")
        rates.append(group_rate(instance, devices))
    return rates


def chunk_durations(
    instance: Instance, schedule: Schedule, rates: Sequence[float], layers: Sequence[int], weight_part: float
) -> Durations:
    """Seconds per virtual stage; a stage's layers are shared by its model chunks as evenly as they go."""
    chunks = schedule.model_chunks
    if min(layers) < chunks:
        raise ImpossibleSchedule(
            f"schedule {schedule.name!r} needs at least {chunks} layers on every stage, one has {min(layers)}"
        )
    forward_s, backward_s, weight_s, first = [], [], [], 0
    for virtual in range(schedule.virtual_stages):
        rank, chunk = schedule.home(virtual)
        whole, extra = divmod(layers[rank], chunks)
        last = first + whole + (chunk < extra)
        forward_s.append((instance.forward_sums[last] - instance.forward_sums[first]) / rates[rank])
        backward = (instance.backward_sums[last] - instance.backward_sums[first]) / rates[rank]
        backward_s.append(backward * (1 - weight_part) if schedule.splits_backward else backward)
        weight_s.append(backward * weight_part)
        first = last
    return Durations(forward_s, backward_s, weight_s)


def timeline_document(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """The answer of `forebay simulate`."""
    return {
        "iteration_time": max(timeline.makespan for timeline in timelines),
        "replicas": [
            {
                "makespan": timeline.makespan,
                "stages": [_stage_document(timeline, rank) for rank in range(len(timeline.slots))],
            }
            for timeline in timelines
        ],
    }


def _stage_document(timeline: Timeline, rank: int) -> dict[str, Any]:
    return {
        "busy_s": timeline.busy_s(rank),
        "chunks": [
            {
                "kind": slot.chunk.kind.value,
                "microbatch": slot.chunk.microbatch,
                "model_chunk": slot.chunk.model_chunk,
                "start": slot.start,
                "end": slot.end,
            }
            for slot in timeline.slots[rank]
        ],
        "bubbles": [
            {"start": bubble.start, "end": bubble.end, "name": bubble.name}
            for bubble in timeline.bubbles(rank)
        ],
    }
