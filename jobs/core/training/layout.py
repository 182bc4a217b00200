"""The layout of a job file: replicas of stages, checked against the model and the devices."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.core.body import Faults, escape
from jobs.core.errors import ImpossibleSchedule
from jobs.core.training.model import ModelShape

# Schedules that run two model chunks on every stage need two layers there.
TWO_CHUNKS = ("interleaved", "zb-v")


@dataclass(frozen=True)
class ClusterFacts:
    """What the check knows of the cluster; without devices (none discovered yet) it does not count them.

    `shared` devices (cores) run several ranks each. `largest_node` bounds a tensor-parallel group.
    """

    devices: int = 0
    shared: bool = True
    memory_bytes: int = 0
    largest_node: int = 0


@dataclass(frozen=True)
class Group:
    """One stage: consecutive layers on a tensor-parallel group."""

    layers: int
    tensor_parallel: int


@dataclass(frozen=True)
class Pipeline:
    """One replica; `microbatches` is None where they are still to be dealt."""

    stages: tuple[Group, ...]
    microbatches: int | None = None


def read_layout(data: Any, pointer: str, faults: Faults) -> list[Pipeline]:
    """Return the replicas of a layout; what is malformed is added to the faults."""
    before = len(faults)
    rows = _rows(data, "replicas", ("replicas",), pointer, faults)
    found = [_pipeline(row, f"{pointer}/replicas/{i}", faults) for i, row in enumerate(rows)]
    return found if len(faults) == before else []


def _pipeline(data: Any, pointer: str, faults: Faults) -> Pipeline:
    rows = _rows(data, "stages", ("stages", "microbatches"), pointer, faults)
    stages = []
    for i, row in enumerate(rows):
        here = f"{pointer}/stages/{i}"
        if not isinstance(row, Mapping):
            faults.append((here, "must be an object with layers and tensor_parallel"))
            continue
        _unknown(row, ("layers", "tensor_parallel"), here, faults)
        layers = _whole(row, "layers", None, here, faults)
        stages.append(Group(layers, _whole(row, "tensor_parallel", 1, here, faults)))
    microbatches = None
    if isinstance(data, Mapping) and data.get("microbatches") is not None:
        microbatches = _whole(data, "microbatches", 1, pointer, faults)
    return Pipeline(tuple(stages), microbatches)


def _rows(data: Any, key: str, known: tuple[str, ...], pointer: str, faults: Faults) -> list[Any]:
    rows = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(rows, list) or not 1 <= len(rows) <= 10_240:
        where = f"{pointer}/{key}" if isinstance(data, Mapping) else pointer
        faults.append((where, f"must be a list of at least one of the {key}"))
        return []
    _unknown(data, known, pointer, faults)
    return rows


def _unknown(data: Mapping[Any, Any], known: tuple[str, ...], pointer: str, faults: Faults) -> None:
    for key in data:
        if key not in known:
            faults.append((f"{pointer}/{escape(str(key))}", f"unknown field; known are {', '.join(known)}"))


def _whole(data: Mapping[str, Any], key: str, default: int | None, pointer: str, faults: Faults) -> int:
    value = data.get(key, default)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 1_000_000
    if not fits or value != int(value):
        faults.append((f"{pointer}/{key}", "must be a whole number of at least 1"))
        return 1
    return int(value)


def check_layout(
    pipelines: list[Pipeline], model: ModelShape, schedule: str, cluster: ClusterFacts, pointer: str
) -> Faults:
    """Return what keeps a layout from running: layers, tensor parallelism, devices."""
    faults: Faults = []
    for i, pipeline in enumerate(pipelines):
        here = f"{pointer}/replicas/{i}"
        owned = sum(group.layers for group in pipeline.stages)
        if len(pipeline.stages) > model.layers:
            faults.append(
                (here, f"has {len(pipeline.stages)} stages, the model has only {model.layers} layers")
            )
        elif owned != model.layers:
            faults.append((here, f"its stages own {owned} layers, the model has {model.layers}"))
        for j, group in enumerate(pipeline.stages):
            faults += _check_group(group, model, schedule, cluster, f"{here}/stages/{j}")
    ranks = sum(group.tensor_parallel for pipeline in pipelines for group in pipeline.stages)
    if cluster.devices and not cluster.shared and ranks > cluster.devices:
        faults.append((pointer, f"asks for {ranks} devices, this cluster has {cluster.devices}"))
    return faults


def _check_group(
    group: Group, model: ModelShape, schedule: str, cluster: ClusterFacts, pointer: str
) -> Faults:
    faults: Faults = []
    size = group.tensor_parallel
    legal = legal_sizes(model)
    if size not in legal:
        what = f"the {model.heads} heads" if model.heads % size else f"the width of {model.width}"
        faults.append(
            (f"{pointer}/tensor_parallel", f"{size} does not divide {what}; legal are {_listed(legal)}")
        )
    elif cluster.largest_node and not cluster.shared and size > cluster.largest_node:
        faults.append(
            (f"{pointer}/tensor_parallel", f"a group of {size} needs one node with as many devices, "
             f"the largest has {cluster.largest_node}")
        )  # fmt: skip
    if schedule in TWO_CHUNKS and group.layers < 2:
        faults.append((f"{pointer}/layers", f"{schedule} cuts every stage in two: it needs 2 layers or more"))
    return faults


def legal_sizes(model: ModelShape) -> list[int]:
    """Return the tensor-parallel degrees that divide the heads and the width."""
    common = math.gcd(model.heads, model.width)
    return [size for size in range(1, common + 1) if common % size == 0]


def check_memory(pipelines: list[Pipeline], model: ModelShape, cluster: ClusterFacts, pointer: str) -> Faults:
    """Return which stages need more memory than a device has; shared devices divide theirs among ranks."""
    ranks = sum(group.tensor_parallel for pipeline in pipelines for group in pipeline.stages)
    if not cluster.memory_bytes or not cluster.devices:
        return []
    share = -(-ranks // cluster.devices) if cluster.shared else 1
    room = cluster.memory_bytes // share
    faults: Faults = []
    for i, pipeline in enumerate(pipelines):
        first = 0
        for j, group in enumerate(pipeline.stages):
            layers = range(first, min(first + group.layers, model.layers))
            in_flight = len(pipeline.stages) - j
            need = sum(model.layer_bytes(layer, in_flight) for layer in layers) // group.tensor_parallel
            if need > room:
                faults.append(
                    (f"{pointer}/replicas/{i}/stages/{j}", f"needs {_gib(need)} on each device, there are "
                     f"{_gib(room)}: use more stages, more tensor parallelism or a smaller model")
                )  # fmt: skip
            first += group.layers
    return faults


def deal_microbatches(
    pipelines: list[Pipeline], total: int | None, pointer: str, faults: Faults
) -> list[int]:
    """Return the micro-batches of every replica; given ones stay, the rest is dealt evenly."""
    given = [pipeline.microbatches for pipeline in pipelines]
    if total is None:
        usual = 2 * max(len(pipeline.stages) for pipeline in pipelines)
        return [usual if count is None else count for count in given]
    open_places = [i for i, count in enumerate(given) if count is None]
    left = total - sum(count for count in given if count is not None)
    if not open_places and left:
        faults.append((pointer, f"is {total}, but the layout's replicas run {total - left} together"))
    elif left < len(open_places):
        faults.append((pointer, f"{total} are too few: each of the {len(given)} replicas runs at least one"))
    if faults:
        return [count or 1 for count in given]
    counts = [count or 0 for count in given]
    for place, i in enumerate(open_places):
        counts[i] = left // len(open_places) + (place < left % len(open_places))
    return counts


def check_schedule(pipelines: list[Pipeline], counts: list[int], schedule: str, pointer: str) -> Faults:
    """Return what keeps the schedule from being built, as the schedule itself says it."""
    from jobs.core.pipeline import build_schedule  # loads NumPy, which only this check needs

    for pipeline, count in zip(pipelines, counts, strict=True):
        try:
            # Long runs repeat one pattern; its rule shows in the rest of the division.
            build_schedule(schedule, len(pipeline.stages), min(count, 4096 + count % len(pipeline.stages)))
        except ImpossibleSchedule as error:
            return [(pointer, str(error))]
    return []


def default_layout(model: ModelShape, schedule: str, devices: int, cluster: ClusterFacts) -> list[Pipeline]:
    """Return a layout for so many devices: the fewest stages whose memory fits, as many replicas as then go.

    Fewer stages mean fewer bubbles. Schedules of two chunks have at least two stages where there is room.
    """
    deepest = model.layers // 2 if schedule in TWO_CHUNKS else model.layers
    most = max(1, min(devices, deepest))
    fewest = min(2, most) if schedule in TWO_CHUNKS else 1
    for stages in range(fewest, most + 1):
        sizes = [model.layers // stages + (i < model.layers % stages) for i in range(stages)]
        replicas = max(1, devices // stages)
        found = [Pipeline(tuple(Group(size, 1) for size in sizes))] * replicas
        if stages == most or not check_memory(found, model, cluster, ""):
            return found
    raise AssertionError("the deepest layout is always returned")


def to_json(pipelines: list[Pipeline], counts: list[int]) -> dict[str, Any]:
    """Return the layout as a job file has it, complete."""
    return {
        "replicas": [
            {
                "microbatches": count,
                "stages": [
                    {"layers": group.layers, "tensor_parallel": group.tensor_parallel}
                    for group in pipeline.stages
                ],
            }
            for pipeline, count in zip(pipelines, counts, strict=True)
        ]
    }


def on_ranks(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the planner's layout document of a job file's layout: ranks r0, r1, ... in order."""
    number = 0
    replicas = []
    for replica in layout["replicas"]:
        stages = []
        for stage in replica["stages"]:
            last = number + stage["tensor_parallel"]
            stages.append({"devices": [f"r{i}" for i in range(number, last)], "layers": stage["layers"]})
            number = last
        replicas.append({"microbatches": replica["microbatches"], "stages": stages})
    return {"replicas": replicas, "idle": [], "dead": []}


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
