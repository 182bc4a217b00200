"""Bodies that are no jobs: refused in one sentence, whatever comes."""

import tracemalloc

import pytest

from jobs.models import Job

JSON, YAML = "application/json", "application/yaml"
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n".encode() for n in range(9)
)


@pytest.mark.parametrize(
    ("content_type", "body", "status", "words"),
    [
        (JSON, b"", 400, "/kind: this field is required"),
        (JSON, b"{", 400, "not JSON"),
        (JSON, b"[]", 400, "a job is an object"),
        (JSON, b"null", 400, "a job is an object"),
        (JSON, b'"text"', 400, "a job is an object"),
        (JSON, b'{"kind": "study", "kind": "study"}', 400, "stands twice"),
        (JSON, b'{"kind": NaN}', 400, "NaN"),
        (JSON, b'{"spec": {"trials": Infinity}}', 400, "Infinity"),
        (JSON, b'{"spec": {"trials": 1e999}}', 400, "/spec/trials: is not a finite number"),
        (JSON, b"[" * 10_000, 400, "nested"),
        (JSON, b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400, "nested"),
        (JSON, b'{"name": "\\u0000"}', 400, "/name: contains a character"),
        (JSON, b'{"name": "\\ud800"}', 400, "/name: contains a character"),
        (JSON, b"\xff\xfe", 400, "not UTF-8"),
        (JSON, b'{"objective": {"at_least": ' + b"9" * 400 + b"}}", 400, "64 bits"),
        (JSON, b'{"kind": "study", "name": "' + b"x" * 999_000 + b'"}', 400, "200 are allowed"),
        (JSON, b" " * 1_000_001, 413, "at most 1 MB"),
        (YAML, b"[" * 10_000, 400, "nest"),
        (YAML, BOMB, 400, "aliases are not allowed"),
        (YAML, b"kind: !!python/object/apply:os.system ['touch /tmp/canary']", 400, "not YAML"),
        (YAML, b"kind: study\nkind: study", 400, "stands twice"),
        (YAML, b"spec: {trials: .inf}", 400, "/spec/trials: is not a finite number"),
        (YAML, b"\t- x", 400, "not YAML"),
        (YAML, b"a: 1\n---\nb: 1", 400, "another document"),
        ("text/plain", b"kind: study", 415, "Unsupported media type"),
        ("application/x-www-form-urlencoded", b"kind=study", 415, "Unsupported media type"),
        ("multipart/form-data; boundary=x", b"--x--", 415, "Unsupported media type"),
        ("application/octet-stream", b"\x80\x04c__builtin__\neval\n", 415, "Unsupported media type"),
        ("nonsense", b"{}", 415, "Unsupported media type"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_job_is_refused_in_one_sentence(world, content_type, body, status, words):
    answer = world.ask("researcher", "POST", "/api/v1/jobs", body, **{"Content-Type": content_type})
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert words in problem["detail"]
    assert problem["status"] == status
    assert problem["instance"] == f"urn:forebay:request:{answer['X-Request-ID']}"
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "pointer"),
    [
        ("kind", "sudy", "/kind"),
        ("kind", 3, "/kind"),
        ("kind", None, "/kind"),
        ("kind", "", "/kind"),
        ("name", "", "/name"),
        ("name", "a\nb", "/name"),
        ("name", "x" * 201, "/name"),
        ("name", ["x"], "/name"),
        ("team", 7, "/team"),
        ("spec", [], "/spec"),
        ("spec", "x", "/spec"),
        ("objective", 0.9, "/objective"),
        ("objective", {}, "/objective"),
        ("objective", {"at_least": 1, "at_most": 2}, "/objective"),
        ("objective", {"at_least": "0.9"}, "/objective/at_least"),
        ("objective", {"at_least": True}, "/objective/at_least"),
        ("onjective", {}, "/onjective"),
        ("a/b~c", 1, "/a~1b~0c"),
        ("priority", 1, "/priority"),
    ],
)
def test_each_field_of_a_job_in_each_wrong_way_is_named(world, field, value, pointer):
    body = {"kind": "study", "spec": {"workload": "tiny"}, field: value}
    answer = world.ask("researcher", "POST", "/api/v1/jobs", body)
    assert answer.status_code == 400
    assert pointer in [row["pointer"] for row in answer.json()["errors"]]


def test_a_body_of_many_aliases_and_levels_takes_no_memory(world):
    world.ask("researcher", "GET", "/api/v1/me")
    tracemalloc.start()
    for content_type, body in ((YAML, BOMB), (JSON, b"[" * 900_000), (YAML, b"- " * 400_000)):
        assert (
            world.ask(
                "researcher", "POST", "/api/v1/jobs", body, **{"Content-Type": content_type}
            ).status_code
            == 400
        )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60_000_000


def test_a_client_that_accepts_no_json_is_told_so_in_json(world):
    answer = world.ask("viewer", "GET", "/api/v1/me", Accept="text/html")
    assert (answer.status_code, answer["Content-Type"]) == (406, "application/problem+json")
