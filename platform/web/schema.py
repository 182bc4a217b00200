"""The OpenAPI document: made from the code, completed with what every address does the same way."""

from collections.abc import Mapping, Sequence
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter

from cluster.api.query import Parameter
from jobs.api.bodies import body_schema

Document = dict[str, Any]

PROBLEM: Document = {
    "type": "object",
    "description": "An error (RFC 9457).",
    "properties": {
        "type": {"type": "string", "description": "urn:forebay:problem:NAME, see docs/api.md"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "the request's identifier, as in the logs"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string", "description": "JSON Pointer into the body"},
                    "parameter": {"type": "string", "description": "name of a query parameter"},
                    "detail": {"type": "string"},
                },
                "required": ["detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail", "instance"],
}
ALWAYS = {
    "400": "The request breaks a rule; `errors` says which.",
    "401": "Not signed in.",
    "403": "Signed in, but not allowed.",
    "406": "No such format.",
    "429": "Too many requests; see Retry-After.",
    "500": "A fault of ours; the log has it under `instance`.",
    "503": "The database is away for a moment; see Retry-After.",
}
WITH_PATH = {"404": "There is no such thing, or it belongs to a team you are not in."}
WITH_BODY = {"413": "The body is over 1 MB.", "415": "The body is neither JSON nor YAML."}
ON_POST = {
    "409": "It cannot be done now, or the first request with this Idempotency-Key is under way.",
    "422": "This Idempotency-Key was used with another body.",
}
ON_CHANGE = {"409": "It cannot be done now."}
ON_MOVE = {"412": "It changed after you read it."}
ON_MOVE_REQUIRED = {"428": "Send If-Match with the ETag of what you read."}
KEY_PARAMETER: Document = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Any text: the same request with the same key is done once and answered again.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
}
MATCH_PARAMETER: Document = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": 'The ETag of what you read, such as "3"; a stale one is refused.',
    "schema": {"type": "string", "pattern": '^(\\*|"[0-9]{1,9}")$'},
}
CONDITIONAL = {"cancelJob", "resumeJob", "setQuota", "setPolicy"}


class ApiSchema(AutoSchema):
    """Reads query parameters from the table the view itself reads them from."""

    def get_override_parameters(self) -> list[Any]:
        return [
            OpenApiParameter(p.name, dict(p.schema), OpenApiParameter.QUERY, description=p.help)
            for p in self._parameters()
            if not p.prefix
        ]

    def get_description(self) -> str:  # type: ignore[override]
        # A family of parameters has no form in OpenAPI, so words have to do.
        families = [p.help for p in self._parameters() if p.prefix]
        return "\n\n".join([super().get_description(), *families])

    def _parameters(self) -> Sequence[Parameter]:
        table: Mapping[str, Sequence[Parameter]] = getattr(self.view, "parameters", {})
        return table.get(self.method, ())


def complete(result: Document, generator: Any, request: Any, public: bool) -> Document:
    """Add problems, the body of a job, and the headers of requests to every operation."""
    result["components"].setdefault("schemas", {})["Problem"] = PROBLEM
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            if "responses" in operation:
                _complete(operation, method, has_path="{" in path)
    submit = result["paths"]["/api/v1/jobs"]["post"]
    content = {media: {"schema": body_schema()} for media in ("application/json", "application/yaml")}
    submit["requestBody"] = {"required": True, "content": content}
    return result


def _complete(operation: Document, method: str, *, has_path: bool) -> None:
    problems = dict(ALWAYS)
    parameters = operation.setdefault("parameters", [])
    if has_path:
        problems |= WITH_PATH
    if method == "post":
        problems |= ON_POST | WITH_BODY
        parameters.append(KEY_PARAMETER)
    if method in ("put", "delete"):
        problems |= ON_CHANGE | (WITH_BODY if method == "put" else {})
    if operation["operationId"] == "setQuota":
        problems |= ON_MOVE_REQUIRED
    if operation["operationId"] in CONDITIONAL:
        problems |= ON_MOVE
        parameters.append(MATCH_PARAMETER)
    for status, words in sorted(problems.items()):
        schema = {"$ref": "#/components/schemas/Problem"}
        operation["responses"].setdefault(
            status, {"description": words, "content": {"application/problem+json": {"schema": schema}}}
        )
