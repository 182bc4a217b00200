"""The `spec` of a training job, checked field by field, every default filled in."""

from collections.abc import Mapping
from typing import Any

from jobs.core.body import Faults
from jobs.core.errors import InvalidSpec
from jobs.core.states import ReconfigurationKind
from jobs.core.training.fields import FIELDS, MODEL_FIELDS, RECOVERY_FIELDS, read_fields
from jobs.core.training.layout import (
    ClusterFacts,
    Pipeline,
    check_layout,
    check_memory,
    check_schedule,
    deal_microbatches,
    default_layout,
    read_layout,
    to_json,
)
from jobs.core.training.model import ModelShape

__all__ = ["ClusterFacts", "check_spec"]

# Workloads that the parallel runtime can train.
TRAINABLE = ("pydoc-gpt",)
LAYERS = 4
KINDS = [kind.value for kind in ReconfigurationKind]
MOST_PARAMETERS = 100_000_000_000


def check_spec(data: Mapping[str, Any], cluster: ClusterFacts, pointer: str = "/spec") -> dict[str, Any]:
    """Return the complete spec; raise InvalidSpec with a pointer and a sentence for every fault."""
    faults: Faults = []
    values = read_fields(data, FIELDS, pointer, faults, ("workload", "parameters", "layout", "recovery"))
    workload = data.get("workload")
    if workload not in TRAINABLE:
        given = (
            "is required" if workload is None else f"{str(workload)[:100]!r} cannot be trained in parallel"
        )
        faults.append((f"{pointer}/workload", f"{given}; choose one of {', '.join(TRAINABLE)}"))
    recovery = _recovery(_given(data, "recovery"), f"{pointer}/recovery", faults)
    parameters = read_fields(_given(data, "parameters"), MODEL_FIELDS, f"{pointer}/parameters", faults)
    pipelines: list[Pipeline] = []
    if data.get("layout") is not None:
        pipelines = read_layout(data["layout"], f"{pointer}/layout", faults)
    if faults:
        raise InvalidSpec(faults)
    model = _model(parameters, pipelines, f"{pointer}/parameters")
    layout = _layout(pipelines, model, values, cluster, pointer)
    microbatches = sum(replica["microbatches"] for replica in layout["replicas"])
    devices = sum(s["tensor_parallel"] for replica in layout["replicas"] for s in replica["stages"])
    shape = {name: getattr(model, name) for name in MODEL_FIELDS}
    return {
        "workload": workload,
        "parameters": shape,
        "layout": layout,
        **values,
        "microbatches": microbatches,
        "devices": devices,
        "recovery": recovery,
    }


def _given(data: Mapping[str, Any], key: str) -> Any:
    return {} if data.get(key) is None else data[key]


def _model(parameters: dict[str, Any], pipelines: list[Pipeline], pointer: str) -> ModelShape:
    if parameters["layers"] is None:
        owned = sum(group.layers for group in pipelines[0].stages) if pipelines else LAYERS
        parameters = {**parameters, "layers": owned}
    model = ModelShape(**parameters)
    if model.microbatch_tokens < model.context:
        raise InvalidSpec(
            [(f"{pointer}/microbatch_tokens", f"must be at least the context, {model.context}")]
        )
    if model.width % model.heads:
        legal = [heads for heads in range(1, min(model.width, 129)) if model.width % heads == 0]
        raise InvalidSpec(
            [(f"{pointer}/heads", f"{model.heads} does not divide the width of {model.width}; legal are "
              f"{', '.join(map(str, legal))}")]
        )  # fmt: skip
    if sum(model.layer_parameters(layer) for layer in range(model.layers)) > MOST_PARAMETERS:
        raise InvalidSpec([(f"{pointer}/width", "a model of more than 100 billion parameters is too large")])
    return model


def _layout(
    pipelines: list[Pipeline],
    model: ModelShape,
    values: dict[str, Any],
    cluster: ClusterFacts,
    pointer: str,
) -> dict[str, Any]:
    """Return the complete layout: the given one or one made for the devices; raise InvalidSpec."""
    schedule = values["schedule"]
    where = f"{pointer}/layout"
    if not pipelines:
        devices = values["devices"] or cluster.devices or 1
        if cluster.devices and not cluster.shared and devices > cluster.devices:
            raise InvalidSpec(
                [(f"{pointer}/devices", f"asks for {devices} devices, this cluster has {cluster.devices}")]
            )
        pipelines = default_layout(model, schedule, devices, cluster)
        if values["microbatches"] is not None:
            pipelines = pipelines[: values["microbatches"]]
    faults = check_layout(pipelines, model, schedule, cluster, where)
    faults += check_memory(pipelines, model, cluster, where)
    counts = deal_microbatches(pipelines, values["microbatches"], f"{pointer}/microbatches", faults)
    if not faults:
        faults += check_schedule(pipelines, counts, schedule, f"{pointer}/microbatches")
    ranks = sum(group.tensor_parallel for pipeline in pipelines for group in pipeline.stages)
    if not faults and values["devices"] not in (None, ranks):
        faults.append(
            (f"{pointer}/devices", f"is {values['devices']}, but the layout has {ranks} ranks; leave one out")
        )
    if faults:
        raise InvalidSpec(faults)
    return to_json(pipelines, counts)


def _recovery(data: Any, pointer: str, faults: Faults) -> dict[str, Any]:
    """Return who decides on which kind of plan; what nobody names needs an approval."""
    values = read_fields(data, RECOVERY_FIELDS, pointer, faults, ("approve", "auto"))
    given = data if isinstance(data, Mapping) else {}
    auto = _kinds(given.get("auto"), [ReconfigurationKind.REBALANCE.value], f"{pointer}/auto", faults)
    usual = [kind for kind in KINDS if kind not in auto]
    approve = _kinds(given.get("approve"), usual, f"{pointer}/approve", faults)
    if given.get("auto") is None:
        auto = [kind for kind in auto if kind not in approve]
    for kind in auto:
        if kind in approve:
            faults.append((f"{pointer}/auto", f"{kind} stands in approve as well"))
    approve = [kind for kind in KINDS if kind not in auto]
    return {"approve": approve, "auto": [kind for kind in KINDS if kind in auto], **values}


def _kinds(value: Any, default: list[str], pointer: str, faults: Faults) -> list[str]:
    if value is None:
        return default
    if not isinstance(value, list):
        faults.append((pointer, f"must be a list of some of {', '.join(KINDS)}"))
        return default
    for index, kind in enumerate(value):
        if kind not in KINDS:
            faults.append((f"{pointer}/{index}", f"must be one of {', '.join(KINDS)}"))
    return [kind for kind in value if kind in KINDS]
