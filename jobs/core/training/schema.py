"""The `spec` of a training job as JSON Schema, for the OpenAPI document."""

from typing import Any

from jobs.core.training.fields import FIELDS, MODEL_FIELDS, RECOVERY_FIELDS
from jobs.core.training.spec import KINDS, TRAINABLE


def spec_schema() -> dict[str, Any]:
    """Return the schema; what needs the model or the cluster is checked when the job is submitted."""
    return _object(
        {
            "workload": {"enum": list(TRAINABLE), "description": "What is trained."},
            "parameters": _object(
                {name: field.schema() for name, field in MODEL_FIELDS.items()}, [], "Sizes of the model."
            ),
            "layout": _layout_schema(),
            **{name: field.schema() for name, field in FIELDS.items()},
            "recovery": _object(
                {
                    "approve": _kinds("Plans that wait for an admin; default: those not in auto."),
                    "auto": _kinds("Plans that the policy lets through; default: rebalance."),
                    **{name: field.schema() for name, field in RECOVERY_FIELDS.items()},
                },
                [],
                "Who decides when a device turns slow or dies.",
            ),
        },
        ["workload"],
        "A hybrid-parallel training job.",
    )


def _layout_schema() -> dict[str, Any]:
    whole = {"type": "integer", "minimum": 1}
    stage = _object(
        {"layers": whole, "tensor_parallel": {**whole, "default": 1}},
        ["layers"],
        "Consecutive layers on a tensor-parallel group.",
    )
    replica = _object(
        {"stages": _list(stage), "microbatches": whole}, ["stages"], "One data-parallel replica."
    )
    layout = _object(
        {"replicas": _list(replica)},
        ["replicas"],
        "Default: the fewest stages whose memory fits, and as many replicas as the devices then allow.",
    )
    return {"oneOf": [{"type": "null"}, layout]}


def _object(properties: dict[str, Any], required: list[str], description: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "description": description,
    }
    return {**found, "required": required} if required else found


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def _kinds(description: str) -> dict[str, Any]:
    return {"type": ["array", "null"], "items": {"enum": KINDS}, "description": description}
