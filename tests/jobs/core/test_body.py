import pytest

from jobs.core.body import parse_body
from jobs.core.errors import InvalidSpec


def faults_of(data):
    with pytest.raises(InvalidSpec) as caught:
        parse_body(data)
    return [pointer for pointer, _ in caught.value.faults]


def test_a_body_with_only_a_kind_is_well_formed():
    body = parse_body({"kind": "study"})
    assert (body.kind, body.name, body.team, body.spec, body.objective) == ("study", "", None, {}, None)


def test_an_objective_is_one_bound():
    assert parse_body({"kind": "study", "objective": {"at_least": 1}}).objective == {"at_least": 1.0}


@pytest.mark.parametrize(
    ("data", "pointers"),
    [
        ([], [""]),
        ("study", [""]),
        ({}, ["/kind"]),
        ({"kind": ""}, ["/kind"]),
        ({"kind": 3}, ["/kind"]),
        ({"kind": "study", "nmae": "x"}, ["/nmae"]),
        ({"kind": "study", "a/b~c": 1}, ["/a~1b~0c"]),
        ({"kind": "study", "name": "x" * 201}, ["/name"]),
        ({"kind": "study", "name": "a\x00b"}, ["/name"]),
        ({"kind": "study", "name": "   "}, ["/name"]),
        ({"kind": "study", "spec": [1]}, ["/spec"]),
        ({"kind": "study", "objective": {}}, ["/objective"]),
        ({"kind": "study", "objective": {"at_least": 1, "at_most": 2}}, ["/objective"]),
        ({"kind": "study", "objective": {"at_least": float("nan")}}, ["/objective/at_least"]),
        ({"kind": "study", "objective": {"at_least": True}}, ["/objective/at_least"]),
        ({"kind": 1, "spec": 2, "team": 3}, ["/kind", "/team", "/spec"]),
    ],
)
def test_every_fault_is_named_by_its_pointer(data, pointers):
    assert faults_of(data) == pointers
