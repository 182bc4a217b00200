"""What a study is refused for when it is submitted, because of the workloads that are there."""

import pytest

from jobs.core.body import parse_body
from jobs.core.errors import InvalidSpec
from jobs.services.submission import submit_job
from tuning.models import Workload


@pytest.fixture
def refusal(study_job):
    def told(name: str) -> list:
        body = parse_body({"kind": "study", "spec": {"workload": name}})
        with pytest.raises(InvalidSpec) as caught:
            submit_job(body=body, team=study_job.team, owner=study_job.owner, actor="ada")
        return [tuple(fault) for fault in caught.value.faults]

    return told


def test_an_unknown_workload_is_answered_with_those_there_are(refusal):
    assert refusal("tinny") == [("/spec/workload", "'tinny' is not available; registered here: tiny")]


def test_one_that_cannot_be_loaded_is_answered_with_its_error(refusal):
    Workload.objects.update(is_available=False, error="No module named 'x'")
    assert refusal("tiny") == [
        ("/spec/workload", "'tiny' is not available (No module named 'x'); registered here: none")
    ]


def test_right_after_a_start_none_is_known_and_the_answer_says_so(refusal):
    Workload.objects.all().delete()
    [(pointer, sentence)] = refusal("tiny")
    assert pointer == "/spec/workload"
    assert "try again in a few seconds" in sentence
