import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from jobs.models import Job
from web.idempotency import Pending, _lock
from web.models import ApiToken, RememberedAnswer
from web.secrets import digest_of

BODY = {"kind": "study", "name": "sweep", "spec": {"workload": "tiny"}}
JOBS = "/api/v1/jobs"


def post(world, key, body=BODY, who="researcher", path=JOBS):
    return world.ask(who, "POST", path, body, **{"Idempotency-Key": key})


def test_the_same_request_again_gives_the_same_answer_and_does_nothing(world):
    first, again = post(world, "k1"), post(world, "k1")
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert (again["Location"], again["ETag"]) == (first["Location"], first["ETag"])
    assert (again.get("Idempotent-Replayed"), first.get("Idempotent-Replayed")) == ("true", None)
    assert Job.objects.count() == 1


def test_the_key_stands_for_one_body_only(world):
    post(world, "k1")
    answer = post(world, "k1", {**BODY, "name": "other"})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:forebay:problem:key-reused")
    assert Job.objects.count() == 1


def test_keys_of_other_people_and_other_addresses_are_other_keys(world):
    first = post(world, "k1").json()
    assert post(world, "k1", who="operator").json()["id"] != first["id"]
    assert post(world, "k1", None, path=f"{JOBS}/{first['id']}/cancel").json()["state"] == "cancelled"
    assert Job.objects.count() == 2


def test_what_failed_may_be_corrected_under_the_same_key(world):
    assert post(world, "k1", {**BODY, "spec": {"workload": "none"}}).status_code == 400
    assert post(world, "k1").status_code == 202
    assert not RememberedAnswer.objects.filter(status__gte=400).exists()


def test_an_action_is_not_done_twice(world, job):
    path = f"{JOBS}/{job.pk}/cancel"
    assert [post(world, "k", None, path=path).status_code for _ in range(3)] == [202, 202, 202]
    job.refresh_from_db()
    assert job.version == 2


@pytest.mark.parametrize("key", ["", " ", "a b", "ä", "x" * 256, "a\tb"])
def test_a_key_that_is_none_is_refused(world, key):
    answer = post(world, key)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:forebay:problem:invalid-header")
    assert not Job.objects.exists()


def test_a_known_key_opens_nothing_to_whoever_may_not_ask(world):
    post(world, "k1")
    world.people["researcher"].memberships.update(role="viewer")
    assert post(world, "k1").status_code == 403
    ApiToken.objects.update(revoked_at=timezone.now())
    assert post(world, "k1").status_code == 401


def test_an_answer_is_forgotten_after_a_day(world):
    first = post(world, "k1").json()
    RememberedAnswer.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert post(world, "k1").json()["id"] != first["id"]


def test_a_new_token_is_given_again_though_the_database_holds_no_secret(world):
    body = {"name": "ci", "scopes": ["read"]}
    first = post(world, "k1", body, path="/api/v1/tokens")
    again = post(world, "k1", body, path="/api/v1/tokens")
    assert first.json() == again.json()
    assert ApiToken.objects.filter(name="ci").count() == 1
    (row,) = RememberedAnswer.objects.values()
    assert first.json()["token"] not in str(row)
    assert "k1" not in {row["key"], row["body"]}


@pytest.mark.django_db(transaction=True)
def test_fifty_equal_requests_at_once_make_one_job(world):
    token = world.token("researcher").text
    world.tokens["researcher"] = token
    gate = threading.Barrier(10)

    def submit(_):
        gate.wait()
        try:
            answer = post(world, "same")
            return answer.status_code, answer.json().get("id"), answer.json().get("type")
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(submit, range(50)))
    assert Job.objects.count() == 1
    assert {status for status, _, _ in answers} <= {202, 409}
    assert {id for status, id, _ in answers if status == 202} == {str(Job.objects.get().pk)}
    assert {kind for status, _, kind in answers if status == 409} <= {"urn:forebay:problem:in-flight"}
    assert post(world, "same").json()["id"] == str(Job.objects.get().pk)


@pytest.mark.django_db(transaction=True)
def test_while_the_first_request_is_under_way_the_second_is_told_to_ask_again(world):
    pending = Pending(world.people["researcher"].pk, "k", digest_of("k"), JOBS, "")
    world.tokens["researcher"] = world.token("researcher").text
    locked, done = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            assert _lock(pending)
            locked.set()
            done.wait(20)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait(20)
    answer = post(world, "k")
    done.set()
    holder.join()
    assert (answer.status_code, answer["Retry-After"]) == (409, "1")
    assert post(world, "k").status_code == 202


@pytest.mark.django_db(transaction=True)
def test_a_request_that_breaks_leaves_neither_a_job_nor_an_answer(world, monkeypatch):
    monkeypatch.setattr("jobs.api.jobs.job_response", lambda *args, **kwargs: 1 / 0)
    answer = post(world, "k")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:forebay:problem:internal")
    assert not Job.objects.exists()
    assert not RememberedAnswer.objects.exists()
