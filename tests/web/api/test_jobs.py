import json

import pytest

from cluster.models import Membership
from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.lifecycle import move_job
from journal.models import AuditEntry, OutboxMessage
from journal.services import Fact, record

BODY = {"kind": "study", "name": "sweep", "spec": {"workload": "tiny", "trials": 3}}


def errors_of(answer):
    return {row["pointer"]: row["detail"] for row in answer.json()["errors"]}


def test_a_submitted_job_is_accepted_with_its_address_and_version(world):
    answer = world.ask("researcher", "POST", "/api/v1/jobs", {**BODY, "objective": {"at_least": 0.9}})
    body = answer.json()
    assert answer.status_code == 202
    assert answer["ETag"] == '"1"'
    assert answer["Location"] == body["links"]["self"] == f"http://testserver/api/v1/jobs/{body['id']}"
    assert (body["state"], body["team"], body["owner"], body["version"]) == (
        "queued",
        "demo",
        "researcher",
        1,
    )
    assert (body["objective"], body["objective_met"]) == ({"at_least": 0.9}, None)
    assert (body["summary"], body["spec"]["epochs"]) == ({"best": None}, 4)
    assert body["links"]["model"] is None
    assert body["links"]["html"] == f"http://testserver/studies/{body['id']}"
    assert world.ask("viewer", "GET", answer["Location"]).json() == body
    assert AuditEntry.objects.filter(action="job.submit").count() == 1


def test_yaml_and_json_mean_the_same_job(world):
    text = b"kind: study\nname: sweep\nspec: {workload: tiny, trials: 3, bubbles: no}\n"
    yaml = world.ask(
        "researcher", "POST", "/api/v1/jobs", text, **{"Content-Type": "application/yaml"}
    ).json()
    spec = {"workload": "tiny", "trials": 3, "bubbles": "no"}
    plain = world.ask("researcher", "POST", "/api/v1/jobs", {**BODY, "spec": spec}).json()
    assert yaml["spec"] == plain["spec"]


def test_the_team_is_the_callers_only_one_and_must_be_said_where_there_are_two(world):
    Membership.objects.create(team=world.foreign_team, user=world.people["researcher"], role="researcher")
    answer = world.ask("researcher", "POST", "/api/v1/jobs", BODY)
    assert (answer.status_code, list(errors_of(answer))) == (400, ["/team"])
    assert "demo, rivals" in errors_of(answer)["/team"]
    assert (
        world.ask("researcher", "POST", "/api/v1/jobs", {**BODY, "team": "rivals"}).json()["team"] == "rivals"
    )


def test_a_foreign_team_is_as_unknown_as_one_that_does_not_exist(world):
    answers = [
        world.ask("researcher", "POST", "/api/v1/jobs", {**BODY, "team": t}) for t in ("rivals", "none")
    ]
    assert [(a.status_code, errors_of(a)) for a in answers] == [
        (400, {"/team": "you have no team 'rivals'"}),
        (400, {"/team": "you have no team 'none'"}),
    ]


def test_a_viewer_of_one_team_cannot_submit_there_by_being_researcher_elsewhere(world):
    Membership.objects.create(team=world.foreign_team, user=world.people["viewer"], role="researcher")
    answer = world.ask("viewer", "POST", "/api/v1/jobs", {**BODY, "team": "demo"})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:forebay:problem:not-allowed")
    assert world.ask("viewer", "POST", "/api/v1/jobs", BODY).json()["team"] == "rivals"


def test_every_fault_of_a_body_is_named_by_its_pointer(world):
    space = {
        "lr": {"type": "loguniform", "low": 0, "high": 1},
        "batch_size": {"type": "choice", "values": []},
    }
    body = {"kind": "study", "spec": {"workload": "tiny", "trials": 0, "sapce": 1, "space": space}}
    answer = world.ask("researcher", "POST", "/api/v1/jobs", body)
    assert answer.status_code == 400
    assert set(errors_of(answer)) == {
        "/spec/trials", "/spec/sapce", "/spec/space/lr/low", "/spec/space/batch_size/values",
    }  # fmt: skip
    assert not Job.objects.exists()


def test_filters_and_pages_of_the_list_hold_every_job_once_newest_first(world, job):
    more = [world.submit() for _ in range(6)]
    foreign = world.submit("stranger", world.foreign_team)
    move_job(more[0], JobState.CANCELLED)
    found, address = [], "/api/v1/jobs?limit=3"
    while address:
        page = world.ask("viewer", "GET", address).json()
        found += [row["id"] for row in page["items"]]
        address = page["next"]
    assert found == [str(j.pk) for j in [*reversed(more), job]]
    assert str(foreign.pk) not in found
    one = world.ask(
        "viewer", "GET", "/api/v1/jobs?state=cancelled,failed&kind=study&team=demo&name=SWEEP"
    ).json()
    assert [row["id"] for row in one["items"]] == [str(more[0].pk)]
    assert world.ask("viewer", "GET", "/api/v1/jobs?owner=viewer").json() == {"items": [], "next": None}
    assert world.ask("viewer", "GET", "/api/v1/jobs?team=rivals").json()["items"] == []


def test_cancel_and_resume_move_the_job_and_bump_its_version(world, job):
    cancelled = world.ask("researcher", "POST", f"/api/v1/jobs/{job.pk}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"], cancelled["ETag"]) == (202, "cancelled", '"2"')
    again = world.ask("researcher", "POST", f"/api/v1/jobs/{job.pk}/cancel")
    assert (again.status_code, again.json()["type"]) == (409, "urn:forebay:problem:illegal-move")
    resumed = world.ask("researcher", "POST", f"/api/v1/jobs/{job.pk}/resume")
    assert (resumed.status_code, resumed.json()["state"], resumed["ETag"]) == (202, "queued", '"3"')
    assert OutboxMessage.objects.exists()


@pytest.mark.parametrize(
    ("tag", "status"),
    [
        ('"1"', 202),
        ('"7", "1"', 202),
        ("*", 202),
        ('"2"', 412),
        ('W/"1"', 412),
        ("1", 400),
        ('"1', 400),
        ("", 400),
    ],
)
def test_if_match_refuses_a_decision_on_an_older_version(world, job, tag, status):
    answer = world.ask("researcher", "POST", f"/api/v1/jobs/{job.pk}/cancel", **{"If-Match": tag})
    assert answer.status_code == status
    job.refresh_from_db()
    assert job.state == ("cancelled" if status == 202 else "queued")


def test_an_action_takes_no_body(world, job):
    answer = world.ask("researcher", "POST", f"/api/v1/jobs/{job.pk}/cancel", {"force": True})
    assert answer.status_code == 400
    assert world.ask("researcher", "POST", f"/api/v1/jobs/{job.pk}/cancel", {}).status_code == 202


@pytest.mark.parametrize(
    ("objective", "metric", "met"),
    [
        ({"at_least": 0.9}, 0.9, True),
        ({"at_least": 0.9}, 0.89, False),
        ({"at_most": 0.1}, 0.0, True),
        ({"at_most": 0.1}, 0.2, False),
        ({"at_most": 0.1}, None, None),
        (None, 0.9, None),
    ],
)
def test_the_answer_says_whether_the_objective_is_met(world, job, objective, metric, met):
    job.objective, job.summary = objective, {"best": {"trial": 2, "metric": metric, "config": {"lr": 0.1}}}
    job.save()
    answer = world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}").json()
    assert answer["objective_met"] is met
    assert answer["summary"]["best"]["trial"] == 2


def test_the_link_to_the_model_downloads_it_as_it_is(world, job, artifact):
    job.summary = {"best": {"trial": 2, "metric": 0.9, "config": {}, "model": str(artifact.pk)}}
    job.save()
    link = world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}").json()["links"]["model"]
    answer = world.ask("viewer", "GET", link, Accept="*/*")
    assert b"".join(answer.streaming_content) == b"weights" * 1000
    assert answer["Content-Length"] == "7000"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"].startswith("attachment; filename")
    assert "\r" not in answer["Content-Disposition"]


def test_an_artifact_whose_path_leaves_the_directory_is_not_there(world, artifact, tmp_path):
    (tmp_path / "secret").write_text("secret")
    for path in ("../secret", str(tmp_path / "secret"), "gone"):
        artifact.path = path
        artifact.save()
        assert world.ask("viewer", "GET", f"/api/v1/artifacts/{artifact.pk}").status_code == 404


def test_events_come_in_order_page_by_page_without_a_gap(world, job):
    record(job.stream, [Fact("trial.report", {"trial": n}) for n in range(10)])
    seqs, address = [], f"/api/v1/jobs/{job.pk}/events?limit=4&after=2"
    while address:
        page = world.ask("viewer", "GET", address).json()
        seqs += [event["seq"] for event in page["items"]]
        address = page["next"]
    assert seqs == list(range(3, 12))
    assert (page["first_seq"], page["last_seq"], page["reset"]) == (1, 11, False)
    assert set(page["items"][0]) == {"stream", "seq", "kind", "at", "data"}


def test_events_say_so_where_the_asked_ones_are_gone_or_never_were(world, job, settings):
    settings.EVENTS_KEPT = 10
    record(job.stream, [Fact("trial.report", {"trial": n}) for n in range(30)])
    forgotten = world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}/events?after=3").json()
    assert (forgotten["reset"], forgotten["items"][0]["seq"]) == (True, forgotten["first_seq"])
    beyond = world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}/events?after=1000").json()
    assert (beyond["reset"], beyond["items"]) == (True, [])


def test_the_timeline_has_a_lane_per_device(world, job):
    (lane,) = world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}/timeline").json()["lanes"]
    assert (lane["id"], lane["label"]) == ("cpu:0", "cpu:0")
    (interval,) = lane["intervals"]
    assert (interval["start_s"], interval["end_s"], interval["trials"]) == (0.0, 2.0, [0, 1])
    assert set(interval) == {"start_s", "end_s", "kind", "label", "trials"}


def test_trials_are_rows_of_the_trial_table_with_an_id(world, job):
    page = world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}/trials?sort=-metric&limit=2").json()
    assert [row["trial"] for row in page["items"]] == [2, 0]
    assert page["total"] == 3
    assert set(page["items"][0]) >= {
        "id",
        "trial",
        "config",
        "metric",
        "epochs",
        "state",
        "reason",
        "device_seconds",
    }
    rest = world.ask("viewer", "GET", page["next"]).json()
    assert ([row["metric"] for row in rest["items"]], rest["next"]) == ([None], None)
    one = world.ask(
        "viewer", "GET", f"/api/v1/jobs/{job.pk}/trials?config.lr__gte=0.015&state=completed"
    ).json()
    assert [row["trial"] for row in one["items"]] == [1, 2]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_exports_are_downloads_whatever_the_client_accepts(world, job, kind):
    answer = world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}/trials.{kind}", Accept=f"text/{kind}")
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == f'attachment; filename="trials-{job.pk}.{kind}"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert world.ask("viewer", "GET", f"/api/v1/jobs/{job.pk}/trials.{kind}?sort=lr").status_code == 400


def test_a_name_made_of_markup_and_templates_comes_back_as_it_is_and_only_as_json(world):
    name = '"><img src=x onerror=alert(1)>{{7*7}}\u202e=1+1'
    answer = world.ask("researcher", "POST", "/api/v1/jobs", {**BODY, "name": name})
    assert answer["Content-Type"] == "application/json"
    assert json.loads(answer.content)["name"] == name
