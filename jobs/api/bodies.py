"""What may be sent as a job, for the OpenAPI document. Each kind's folder describes its own spec."""

from typing import Any

from jobs.core.body import NAME_LENGTH
from jobs.core.scheduling import FIELDS

Schema = dict[str, Any]
_specs: dict[str, Schema] = {}

OBJECTIVE: Schema = {
    "description": "The metric that `forebay submit --wait` asks for.",
    "oneOf": [
        {"type": "null"},
        *(
            {
                "type": "object",
                "properties": {rule: {"type": "number"}},
                "required": [rule],
                "additionalProperties": False,
            }
            for rule in ("at_least", "at_most")
        ),
    ],
}


def describe_spec(kind: str, schema: Schema) -> None:
    """Say in JSON Schema what the spec of a kind of job may hold."""
    _specs[kind] = schema


def body_schema() -> Schema:
    """Return the JSON Schema of a job's body: one form per kind that can be submitted here."""
    return {"oneOf": [_body(kind, spec) for kind, spec in sorted(_specs.items())]}


def _body(kind: str, spec: Schema) -> Schema:
    text = {
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_LENGTH,
        "pattern": r"^[^\x00-\x1f]*[^\s\x00-\x1f][^\x00-\x1f]*$",
    }
    # What a kind reads itself is described by the kind.
    properties = {**FIELDS, **spec["properties"]} if "properties" in spec else FIELDS
    return {
        "title": f"{kind} job",
        "type": "object",
        "properties": {
            "kind": {"const": kind},
            "name": {**text, "description": "For people; the default is the workload's name."},
            "team": {**text, "description": "Slug of the team; the default is the caller's only team."},
            "spec": {**spec, "properties": properties},
            "objective": OBJECTIVE,
        },
        "required": ["kind", "spec"],
        "additionalProperties": False,
    }
