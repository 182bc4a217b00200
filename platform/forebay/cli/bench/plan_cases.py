"""The clusters and failures of `forebay bench plan`: simulated devices, one 70B-like model."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.core.layout import Device, Instance, Layer, Layout, Replica, Stage

EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.87, 8: 0.76}
LAYERS = 80
LAYER_MEMORY = 14.0  # GB with optimizer state, on devices of 80 GB
STAGES, DEGREE, NODE = 16, 4, 8


@dataclass(frozen=True, slots=True)
class Scenario:
    """What has happened to the devices: speed by device number."""

    name: str
    kind: str
    speeds: dict[int, float]


def cluster(
    devices: int, microbatches_per_replica: int, speeds: dict[int, float], limit_s: float
) -> Instance:
    """TP4 x PP16 on every 64 devices, as many replicas as that gives, all running today."""
    replicas = devices // (STAGES * DEGREE)
    rows = tuple(Device(f"g{i}", f"n{i // NODE}", speeds.get(i, 1.0), 80.0) for i in range(devices))
    return Instance(
        devices=rows,
        layers=(Layer(1.0, 2.0, LAYER_MEMORY),) * LAYERS,
        heads=64,
        sizes=(1, 2, 4, 8),
        efficiency=EFFICIENCY,
        replicas=replicas,
        microbatches=replicas * microbatches_per_replica,
        current=Layout(tuple(_replica(r, microbatches_per_replica) for r in range(replicas))),
        time_limit_s=limit_s,
    )


def _replica(number: int, microbatches: int) -> Replica:
    first = number * STAGES * DEGREE
    stages = []
    for stage in range(STAGES):
        start = first + stage * DEGREE
        stages.append(Stage(tuple(f"g{i}" for i in range(start, start + DEGREE)), LAYERS // STAGES))
    return Replica(microbatches, tuple(stages))


def scenarios() -> Iterator[Scenario]:
    """Failures on 256 devices: fail-slow, fail-stop, mixed, from one device to every replica hit."""
    yield Scenario("one device at 0.8", "fail-slow", {5: 0.8})
    yield Scenario("one device at 0.5", "fail-slow", {5: 0.5})
    yield Scenario("one device at 0.1", "fail-slow", {5: 0.1})
    yield Scenario("one device per replica at 0.5", "fail-slow", {5 + 64 * r: 0.5 for r in range(4)})
    yield Scenario("8 devices at 0.25 to 0.8", "fail-slow", _random(8, (0.25, 0.4, 0.5, 0.67, 0.8), 1))
    yield Scenario("16 devices at 0.1 to 0.67", "fail-slow", _random(16, (0.1, 0.25, 0.4, 0.5, 0.67), 2))
    yield Scenario("one device dead", "fail-stop", {5: 0.0})
    yield Scenario("one node dead", "fail-stop", dict.fromkeys(range(8, 16), 0.0))
    yield Scenario("one device per replica dead", "fail-stop", {5 + 76 * r: 0.0 for r in range(4)})
    yield Scenario("8 devices dead", "fail-stop", _random(8, (0.0,), 3))
    yield Scenario("one dead, one at 0.5", "mixed", {5: 0.0, 100: 0.5})
    yield Scenario("2 dead, 6 at 0.25 to 0.67", "mixed", _random(8, (0.0, 0.25, 0.5, 0.67), 4))
    yield Scenario(
        "one dead and one at 0.25 per replica",
        "mixed",
        {5 + 76 * r: 0.0 for r in range(4)} | {40 + 60 * r: 0.25 for r in range(4)},
    )
    yield Scenario("8 dead, 8 at 0.1 to 0.5", "mixed", _random(16, (0.0, 0.1, 0.0, 0.5), 5))


def spread(devices: int, seed: int) -> dict[int, float]:
    """Failures on a large cluster: one device in 128 slow or dead."""
    return _random(max(4, devices // 128), (0.0, 0.25, 0.5, 0.5, 0.8), seed, devices)


def _random(count: int, speeds: tuple[float, ...], seed: int, devices: int = 256) -> dict[int, float]:
    chosen = random.Random(seed).sample(range(devices), count)
    return {device: speeds[index % len(speeds)] for index, device in enumerate(chosen)}
