"""The OpenAPI document, and the API asked with everything the document allows and forbids."""

import json
import re

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
]  # fmt: skip

DOCUMENT = json.loads(json.dumps(SchemaGenerator().get_schema(public=True)))
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations()]


@pytest.fixture
def document():
    return DOCUMENT


def operations(document):
    return [(p, m, o) for p, ms in document["paths"].items() for m, o in ms.items() if "responses" in o]


def test_the_document_is_openapi_3_1(document):
    assert document["openapi"].startswith("3.1")
    validate_schema(document)


def test_every_operation_documents_its_problems(document):
    for path, method, operation in operations(document):
        known = set(operation["responses"])
        assert known >= {"400", "401", "403", "406", "429", "500"}, path
        assert ("404" in known) >= ("{" in path), path
        if method == "post":
            assert known >= {"409", "413", "415", "422"}, path
            assert "Idempotency-Key" in [p["name"] for p in operation["parameters"]]
        for status in known - {"200", "201", "202", "204"}:
            (content,) = operation["responses"][status]["content"]
            assert content == "application/problem+json"


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does(document):
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+[A-Za-z]+", name) for name in names)
    assert all(operation["description"].strip() for _, _, operation in operations(document))


def test_the_body_of_a_job_is_described_field_by_field(document):
    body = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/yaml"}
    (study,) = [form for form in body["application/json"]["schema"]["oneOf"] if form["title"] == "study job"]
    assert study["required"] == ["kind", "spec"]
    assert {"workload", "trials", "space", "scheduler"} <= set(study["properties"]["spec"]["properties"])


def test_the_served_document_is_json_or_yaml_as_asked(world):
    plain = world.send("GET", "/api/schema/", Accept="application/vnd.oai.openapi+json")
    assert json.loads(plain.content)["info"]["title"] == "Forebay"
    yaml = world.send("GET", "/api/schema/", Accept="application/vnd.oai.openapi")
    assert yaml.content.startswith(b"openapi: 3.1")


@pytest.fixture
def kept():
    """Keep the test's connection, which the end of a request would close, as Django's client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.label for operation in OPERATIONS])
def test_a_request_is_answered_as_documented(world, job, artifact, kept, operation, mode):
    """Ids are replaced by ones that exist, except where the example is about a wrong one."""
    known = {
        "job_id": str(job.pk), "artifact_id": str(artifact.pk), "team_id": str(world.team.pk),
        "device_id": str(world.device.pk), "name": "tiny",
    }  # fmt: skip
    operation.schema.app = operation.app = get_wsgi_application()
    headers = {"Authorization": f"Bearer {world.token('admin').text}"}

    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case):
        if mode is GenerationMode.POSITIVE:
            case.path_parameters = {name: known.get(name, v) for name, v in case.path_parameters.items()}
            if operation.label == "POST /api/v1/jobs":
                case.body = {**case.body, "spec": {**case.body["spec"], "workload": "tiny"}, "team": "demo"}
        case.validate_response(case.call(headers=headers), checks=CHECKS)

    ask()
