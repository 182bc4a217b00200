import pytest

from forebay.job_files import BadJobFile, change, parse_job, read_job_file


@pytest.mark.parametrize(
    ("assignment", "job"),
    [
        ("spec.trials=5", {"kind": "study", "spec": {"trials": 5, "space": None}}),
        ("name=a b = c", {"kind": "study", "spec": {"trials": 1, "space": None}, "name": "a b = c"}),
        ("spec.space.lr.low=1e-3", {"kind": "study", "spec": {"trials": 1, "space": {"lr": {"low": 0.001}}}}),
        ("spec.bubbles=no", {"kind": "study", "spec": {"trials": 1, "space": None, "bubbles": "no"}}),
        ("spec.deadline_s=null", {"kind": "study", "spec": {"trials": 1, "space": None, "deadline_s": None}}),
        ("objective={at_least: 0.9}", {"kind": "study", "spec": {"trials": 1, "space": None},
                                       "objective": {"at_least": 0.9}}),
    ],
)  # fmt: skip
def test_a_value_is_replaced_by_its_path(assignment, job):
    assert change({"kind": "study", "spec": {"trials": 1, "space": None}}, [assignment]) == job


@pytest.mark.parametrize(
    "assignment", ["", "spec", "=1", "spec.=1", "spec..x=1", "kind.x=1", "spec.trials.x=1", "spec.x=["]
)
def test_a_replacement_that_cannot_be_is_named(assignment):
    with pytest.raises(BadJobFile, match="--set"):
        change({"kind": "study", "spec": {"trials": 1}}, [assignment])


def test_a_file_that_is_no_job_is_named_with_the_reason(tmp_path):
    for name, content, words in [
        ("a.yaml", b"a: [", "a.yaml: this is not YAML"),
        ("b.json", b"{'a': 1}", "b.json: this is not JSON"),
        ("c.yaml", b"- 1", "c.yaml: a job is an object"),
        ("d.yaml", b"\xff", "d.yaml: it is not UTF-8 text"),
        ("e.yaml", b"", "e.yaml: a job is an object"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BadJobFile) as caught:
            read_job_file(path)
        assert words in str(caught.value)
    with pytest.raises(BadJobFile, match="No such file"):
        read_job_file(tmp_path / "none")


def test_a_job_reads_the_same_from_yaml_and_json():
    assert parse_job("kind: study\nspec: {trials: 3}", "x.yaml") == parse_job(
        '{"kind":"study","spec":{"trials":3}}', "x.json"
    )
