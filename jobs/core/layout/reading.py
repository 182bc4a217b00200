"""Read an instance or a layout from plain data; every malformed field is refused by name and rule."""

import math
from collections.abc import Mapping
from typing import Any

from jobs.core.errors import MalformedInstance
from jobs.core.layout.instance import Device, Instance, Layer, Layout, Replica, Stage

LARGEST = {"devices": 100_000, "layers": 10_000, "microbatches": 1_000_000}
# Outside these, products and quotients of times and speeds would leave the range of a double.
LARGEST_QUANTITY = 1e18
SMALLEST_FACTOR, LARGEST_FACTOR = 1e-12, 1e12


def read_instance(data: Any) -> Instance:
    """Return a valid instance; raises MalformedInstance naming the first field that breaks a rule.

    Whether any layout exists at all is not asked here, see `feasibility.check_feasible`, nor whether
    `current` could be running, see `check_layout`.
    """
    root = _object(data, "the instance")
    devices = _devices(_required(root, "devices"))
    layers = _layers(_required(root, "layers"))
    sizes, efficiency = _tensor_parallel(_required(root, "tensor_parallel"))
    replicas = _required(root, "replicas")
    instance = Instance(
        devices=devices,
        layers=layers,
        heads=_optional_whole(root, "heads"),
        sizes=sizes,
        efficiency=efficiency,
        replicas=None if replicas is None else _whole(replicas, "replicas", 1),
        microbatches=_whole(_required(root, "microbatches"), "microbatches", 1, LARGEST["microbatches"]),
        transfer_s=_optional_number(root, "transfer_s", 0.0),
        time_limit_s=_optional_number(root, "time_limit_s", 10.0),
    )
    if root.get("current") is not None:
        object.__setattr__(instance, "current", read_layout(root["current"], instance, "current"))
    return instance


def read_layout(data: Any, instance: Instance, where: str) -> Layout:
    """Return a layout whose devices exist, work once each, and whose replicas own every layer once."""
    rows = _list(_required(_object(data, where), "replicas", where), f"{where}.replicas")
    if not rows:
        raise MalformedInstance(f"{where}.replicas: at least one replica is needed")
    seen: dict[str, str] = {}
    return Layout(
        tuple(_replica(row, instance, f"{where}.replicas[{i}]", seen) for i, row in enumerate(rows))
    )


def read_plan(data: Any, instance: Instance) -> Layout:
    """Return the layout of a planner's answer, or of its `plan` alone."""
    root = _object(data, "the plan")
    return read_layout(root.get("plan", root), instance, "plan")


def check_layout(instance: Instance, layout: Layout, where: str) -> None:
    """Refuse a layout that cannot run: its micro-batches or its groups break the instance's rules."""
    total = sum(replica.microbatches for replica in layout.replicas)
    if total != instance.microbatches:
        raise MalformedInstance(
            f"{where}: its replicas run {total} micro-batches, the instance has {instance.microbatches}"
        )
    _check_groups(instance, layout, where)


def _check_groups(instance: Instance, layout: Layout, where: str) -> None:
    """Refuse groups of a size without efficiency and groups that span nodes."""
    for i, replica in enumerate(layout.replicas):
        for j, stage in enumerate(replica.stages):
            path = f"{where}.replicas[{i}].stages[{j}].devices"
            size = len(stage.devices)
            if size not in instance.sizes:
                allowed = ", ".join(map(str, instance.sizes))
                raise MalformedInstance(f"{path}: a group of {size}, but tensor_parallel.sizes are {allowed}")
            nodes = sorted({instance.device(name).node for name in stage.devices})
            if len(nodes) > 1:
                raise MalformedInstance(
                    f"{path}: a group must lie on one node, this one spans {', '.join(nodes)}"
                )


def _replica(data: Any, instance: Instance, where: str, seen: dict[str, str]) -> Replica:
    row = _object(data, where)
    rows = _list(_required(row, "stages", where), f"{where}.stages")
    stages = tuple(_stage(item, instance, f"{where}.stages[{j}]", seen) for j, item in enumerate(rows))
    owned = sum(stage.layers for stage in stages)
    if owned != len(instance.layers):
        raise MalformedInstance(
            f"{where}: its stages own {owned} layers, the model has {len(instance.layers)}"
        )
    count = _whole(_required(row, "microbatches", where), f"{where}.microbatches", 1, LARGEST["microbatches"])
    return Replica(count, stages)


def _stage(data: Any, instance: Instance, where: str, seen: dict[str, str]) -> Stage:
    row = _object(data, where)
    names = _list(_required(row, "devices", where), f"{where}.devices")
    if not names:
        raise MalformedInstance(f"{where}.devices: at least one device is needed")
    for index, name in enumerate(names):
        path = f"{where}.devices[{index}]"
        if not isinstance(name, str) or name not in instance._by_id:
            raise MalformedInstance(f"{path}: {name!r} is not a device of the instance")
        if name in seen:
            raise MalformedInstance(f"{path}: {name!r} already works in {seen[name]}")
        seen[name] = where
    return Stage(tuple(names), _whole(_required(row, "layers", where), f"{where}.layers", 1))


def _devices(data: Any) -> tuple[Device, ...]:
    rows = _list(data, "devices")
    if len(rows) > LARGEST["devices"]:
        raise MalformedInstance(f"devices: at most {LARGEST['devices']:,} are supported, {len(rows):,} given")
    devices, seen = [], set()
    for index, item in enumerate(rows):
        where = f"devices[{index}]"
        row = _object(item, where)
        device = Device(
            id=_name(_required(row, "id", where), f"{where}.id"),
            node=_name(_required(row, "node", where), f"{where}.node"),
            speed=_factor(_required(row, "speed", where), f"{where}.speed"),
            memory=_number(_required(row, "memory", where), f"{where}.memory"),
        )
        if device.id in seen:
            raise MalformedInstance(f"{where}.id: {device.id!r} is given twice")
        seen.add(device.id)
        devices.append(device)
    return tuple(devices)


def _layers(data: Any) -> tuple[Layer, ...]:
    if isinstance(data, Mapping):
        count = _whole(_required(data, "count", "layers"), "layers.count", 1, LARGEST["layers"])
        return (_layer(data, "layers"),) * count
    rows = _list(data, "layers")
    if not rows:
        raise MalformedInstance("layers: at least one layer is needed")
    if len(rows) > LARGEST["layers"]:
        raise MalformedInstance(f"layers: at most {LARGEST['layers']:,} are supported, {len(rows):,} given")
    return tuple(_layer(_object(row, f"layers[{i}]"), f"layers[{i}]") for i, row in enumerate(rows))


def _layer(row: Mapping[str, Any], where: str) -> Layer:
    forward, backward, memory = (
        _number(_required(row, key, where), f"{where}.{key}") for key in ("forward", "backward", "memory")
    )
    return Layer(forward, backward, memory)


def _tensor_parallel(data: Any) -> tuple[tuple[int, ...], dict[int, float]]:
    where = "tensor_parallel"
    row = _object(data, where)
    rows = _list(_required(row, "sizes", where), f"{where}.sizes")
    if not rows:
        raise MalformedInstance(f"{where}.sizes: at least one size is needed")
    sizes = sorted({_whole(size, f"{where}.sizes[{i}]", 1) for i, size in enumerate(rows)})
    table = _object(_required(row, "efficiency", where), f"{where}.efficiency")
    efficiency = {}
    for size in sizes:
        if str(size) not in table:
            raise MalformedInstance(f"{where}.efficiency: no value for size {size}")
        efficiency[size] = _factor(table[str(size)], f"{where}.efficiency.{size}")
        if efficiency[size] == 0:
            raise MalformedInstance(f"{where}.efficiency.{size}: must be above 0")
    return tuple(sizes), efficiency


def _object(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise MalformedInstance(f"{where}: must be an object, got {_kind(data)}")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise MalformedInstance(f"{where}: must be a list, got {_kind(data)}")
    return data


def _required(row: Mapping[str, Any], key: str, where: str = "") -> Any:
    if key not in row:
        raise MalformedInstance(f"{where}.{key}: is missing" if where else f"{key}: is missing")
    return row[key]


def _name(data: Any, where: str) -> str:
    if not isinstance(data, str) or not data:
        raise MalformedInstance(f"{where}: must be a non-empty string, got {_kind(data)}")
    return data


def _number(data: Any, where: str) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise MalformedInstance(f"{where}: must be a number, got {_kind(data)}")
    try:
        value = float(data)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise MalformedInstance(f"{where}: must be a finite number")
    if value < 0:
        raise MalformedInstance(f"{where}: must not be negative, got {data}")
    if value > LARGEST_QUANTITY:
        raise MalformedInstance(f"{where}: must be at most {LARGEST_QUANTITY:g}")
    return value


def _factor(data: Any, where: str) -> float:
    value = _number(data, where)
    if value and not SMALLEST_FACTOR <= value <= LARGEST_FACTOR:
        raise MalformedInstance(
            f"{where}: must lie between {SMALLEST_FACTOR:g} and {LARGEST_FACTOR:g}, or be 0"
        )
    return value


def _whole(data: Any, where: str, least: int, most: int | None = None) -> int:
    whole = isinstance(data, int) or (isinstance(data, float) and data.is_integer())
    if isinstance(data, bool) or not whole:
        raise MalformedInstance(f"{where}: must be a whole number, got {_kind(data)}")
    value = int(data)
    if value < least:
        raise MalformedInstance(f"{where}: must be at least {least}, got {value}")
    if most is not None and value > most:
        raise MalformedInstance(f"{where}: at most {most:,} are supported")
    return value


def _optional_whole(row: Mapping[str, Any], key: str) -> int | None:
    return None if row.get(key) is None else _whole(row[key], key, 1)


def _optional_number(row: Mapping[str, Any], key: str, default: float) -> float:
    return default if row.get(key) is None else _number(row[key], key)


def _kind(data: Any) -> str:
    if data is None:
        return "null"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, str):
        return f"the string {data[:40]!r}"
    if isinstance(data, int | float):
        return f"{data:g}" if isinstance(data, float) else str(data)[:40]
    return "a list" if isinstance(data, list) else "an object"
