from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import Injection, Job, Reconfiguration, TrainingRun
from journal.models import AuditEntry
from telemetry.models import FailureEvent

PIPELINE = {"stages": [{"layers": 2, "tensor_parallel": 1}, {"layers": 2, "tensor_parallel": 1}]}


def body(**spec):
    return {"kind": "training", "name": "tiny GPT", "spec": {"workload": "pydoc-gpt", **spec}}


def test_a_training_job_is_accepted_with_every_default_stated(world):
    answer = world.ask("researcher", "POST", "/api/v1/jobs", body(layout={"replicas": [PIPELINE]}))
    assert answer.status_code == 202
    job = answer.json()
    assert (job["kind"], job["state"]) == ("training", "queued")
    spec = job["spec"]
    assert spec["layout"] == {"replicas": [{"microbatches": 4, **PIPELINE}]}
    assert (spec["schedule"], spec["microbatches"], spec["devices"]) == ("1f1b", 4, 2)
    assert spec["recovery"]["auto"] == ["rebalance"]
    run = TrainingRun.objects.get(pk=job["id"])
    assert [stage["devices"] for stage in run.layout["replicas"][0]["stages"]] == [["r0"], ["r1"]]


@pytest.mark.parametrize(
    ("spec", "pointer", "words"),
    [
        ({"workload": "digits-mlp"}, "/spec/workload", "pydoc-gpt"),
        ({"stpes": 3}, "/spec/stpes", "unknown field"),
        ({"schedule": "2f2b"}, "/spec/schedule", "1f1b"),
        ({"layout": {"replicas": [{"stages": [{"layers": 4, "tensor_parallel": 3}]}]}},
         "/spec/layout/replicas/0/stages/0/tensor_parallel", "legal are 1, 2, 4"),
        ({"parameters": {"layers": 30}, "layout": {"replicas": [{"stages": [{"layers": 7}] * 4}]}},
         "/spec/layout/replicas/0", "own 28 layers, the model has 30"),
        ({"parameters": {"layers": 2}, "layout": {"replicas": [{"stages": [{"layers": 1}] * 3}]}},
         "/spec/layout/replicas/0", "3 stages"),
        ({"recovery": {"auto": ["exclude"], "approve": ["exclude"]}}, "/spec/recovery/auto", "as well"),
    ],
)  # fmt: skip
def test_a_wrong_spec_is_refused_with_the_field_and_the_legal_choices(world, spec, pointer, words):
    answer = world.ask("researcher", "POST", "/api/v1/jobs", body(**spec))
    assert answer.status_code == 400
    faults = {row["pointer"]: row["detail"] for row in answer.json()["errors"]}
    assert words in faults[pointer]
    assert not Job.objects.exists()


def test_the_document_of_the_api_describes_training_jobs(world):
    schema = world.send("GET", "/api/schema/", Accept="application/json").content.decode()
    for part in ("training job", "approveReconfiguration", "injectFault", "listVerdicts", "tensor_parallel"):
        assert part in schema


def test_verdicts_and_plans_are_listed_for_the_team_alone(world, reconfiguration, verdict):
    for path, row in (("verdicts", verdict), ("reconfigurations", reconfiguration)):
        assert [r["id"] for r in world.ask("viewer", "GET", f"/api/v1/{path}").json()["items"]] == [
            str(row.pk)
        ]
        assert world.ask("stranger", "GET", f"/api/v1/{path}").json()["items"] == []
        assert world.ask("viewer", "GET", f"/api/v1/{path}?state=nonsense").status_code == 400
        one = world.ask("viewer", "GET", f"/api/v1/{path}/{row.pk}")
        assert (one.json()["job"], one["ETag"]) == (str(row.job_id), f'"{row.version}"')
    answer = world.ask("viewer", "GET", f"/api/v1/verdicts?state=open&job={verdict.job_id}").json()
    assert (answer["items"][0]["slowdown"], answer["items"][0]["device_label"]) == (2.5, "n0/cpu:0")
    assert FailureEvent.objects.get().message.startswith("slow device: node n0 replica 0 stage 1 rank 1")


def decide(world, who, row, verb="approve", body=None, **headers):
    return world.ask(who, "POST", f"/api/v1/reconfigurations/{row.pk}/{verb}", body or {}, **headers)


def test_an_admin_approves_the_version_they_have_seen(world, reconfiguration):
    assert decide(world, "admin", reconfiguration).status_code == 428
    assert decide(world, "admin", reconfiguration, **{"If-Match": '"7"'}).status_code == 412
    answer = decide(world, "admin", reconfiguration, body={"comment": "go"}, **{"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["state"], answer["ETag"]) == (200, "approved", '"2"')
    assert (answer.json()["approver"], answer.json()["comment"]) == ("admin", "go")
    again = decide(world, "admin", reconfiguration, "reject", **{"If-Match": '"2"'})
    assert (again.status_code, again.json()["detail"]) == (
        409, "a reconfiguration that is approved cannot become rejected",
    )  # fmt: skip


def test_a_repeated_approval_with_one_key_is_one_approval(world, reconfiguration):
    headers = {"If-Match": '"1"', "Idempotency-Key": "k1"}
    answers = [decide(world, "admin", reconfiguration, **headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert AuditEntry.objects.filter(action="reconfiguration.approve").count() == 1


def test_whoever_asked_breaks_the_glass_or_waits_for_somebody_else(world, reconfiguration):
    world.people["researcher"].memberships.update(role="admin")
    refused = decide(world, "researcher", reconfiguration, **{"If-Match": '"1"'})
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:forebay:problem:own-request")
    glass = {"break_glass": "the others are asleep"}
    assert decide(world, "researcher", reconfiguration, body=glass, **{"If-Match": '"1"'}).status_code == 200


def test_an_expired_plan_and_one_for_a_job_that_moved_on_are_conflicts(world, reconfiguration):
    Reconfiguration.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert decide(world, "admin", reconfiguration, **{"If-Match": '"1"'}).status_code == 409
    Reconfiguration.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    TrainingRun.objects.update(epoch=2)
    answer = decide(world, "admin", reconfiguration, **{"If-Match": '"1"'})
    assert (answer.status_code, "moved on" in answer.json()["detail"]) == (409, True)


@pytest.mark.parametrize("wrong", [{"why": "x"}, [1], {"comment": "x" * 1001}, {"comment": None}])
def test_a_wrong_decision_is_refused(world, reconfiguration, wrong):
    assert decide(world, "admin", reconfiguration, body=wrong, **{"If-Match": '"1"'}).status_code == 400


def test_an_operator_injects_a_fault_into_a_running_rank(world, training_job):
    path = f"/api/v1/jobs/{training_job.pk}/inject"
    answer = world.ask("operator", "POST", path, {"mode": "slow", "rank": 1, "factor": 3})
    assert (answer.status_code, answer.json()["factor"]) == (202, 3.0)
    assert Injection.objects.get().actor.startswith("operator")
    assert AuditEntry.objects.filter(action="job.inject").count() == 1


@pytest.mark.parametrize(
    ("fault", "pointer"),
    [
        ({"mode": "burn", "rank": 1}, "/mode"),
        ({"mode": "slow"}, "/rank"),
        ({"mode": "slow", "rank": 9}, "/rank"),
        ({"mode": "slow", "rank": 1, "factor": 0.5}, "/factor"),
        ({"mode": "slow", "rank": 1, "speed": 2}, "/speed"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(world, training_job, fault, pointer):
    answer = world.ask("operator", "POST", f"/api/v1/jobs/{training_job.pk}/inject", fault)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)
    assert not Injection.objects.exists()


def test_faults_are_injected_into_running_training_jobs_alone(world, training_job, job):
    fault = {"mode": "stop", "rank": 0}
    assert world.ask("operator", "POST", f"/api/v1/jobs/{job.pk}/inject", fault).status_code == 409
    Job.objects.update(state="completed")
    assert world.ask("operator", "POST", f"/api/v1/jobs/{training_job.pk}/inject", fault).status_code == 409
