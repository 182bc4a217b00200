import http.server
import threading
from pathlib import Path

import pytest
from django.db import connection

import forebay
from forebay import transport
from forebay.client import ApiError, Client, JobTimeout, Unreachable
from jobs.core.body import parse_body
from jobs.core.document import parse_text
from jobs.core.overlap import spec as overlap
from jobs.core.training import ClusterFacts
from jobs.core.training import spec as training
from jobs.models import Job
from tuning.core.study.spec import StudySpec

STUDY = {"kind": "study", "name": "sweep", "spec": {"workload": "tiny", "trials": 3}}


def in_thread(action, *args):
    """Act, and close the thread's connection to the database."""
    try:
        action(*args)
    finally:
        connection.close()


@pytest.fixture
def client(server):
    with Client(server.url, server.token) as client:
        yield client


def test_the_client_is_a_public_name():
    assert forebay.Client is Client


def test_a_job_is_submitted_from_a_file_or_from_data(client, tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("kind: study\nname: from file\nspec: {workload: tiny}\n")
    assert (client.submit(path).name, client.submit(str(path)).name) == ("from file", "from file")
    assert client.submit(STUDY).data["spec"]["trials"] == 3
    assert [job.name for job in client.jobs()] == ["sweep", "from file", "from file"]


def test_wait_ends_with_the_job_and_tells_each_change(client, server):
    job = client.submit(STUDY)
    seen = []
    threading.Timer(0.5, in_thread, (server.finish, job.id)).start()
    assert job.wait(30, lambda job: seen.append(job.state)).state == "completed"
    assert job.best == {"trial": 1, "metric": 0.9, "config": {"lr": 0.1}}
    assert seen[-1] == "completed"
    assert job.summary["trials_ended"] == 3


def test_wait_gives_up_and_the_job_goes_on(client):
    job = client.submit(STUDY)
    with pytest.raises(JobTimeout, match="goes on"):
        job.wait(0.5)
    assert job.refresh().state == "queued"


def test_a_job_is_cancelled_and_resumed(client):
    job = client.submit(STUDY)
    assert job.cancel().state == "cancelled"
    assert job.resume().state == "queued"
    with pytest.raises(ApiError) as caught:
        job.resume()
    assert caught.value.status == 409


def test_the_same_key_gives_the_same_job(client):
    assert client.submit(STUDY, key="sha-1").id == client.submit(STUDY, key="sha-1").id
    assert Job.objects.count() == 1
    with pytest.raises(ApiError) as caught:
        client.submit({**STUDY, "name": "other"}, key="sha-1")
    assert caught.value.status == 422


def test_trials_events_and_exports_of_a_job_are_at_hand(client, server, tmp_path):
    job = client.submit(STUDY)
    server.finish(job.id)
    assert [row["trial"] for row in job.trials(sort="-number")] == [2, 1, 0]
    assert [event["data"]["state"] for event in job.events()] == ["queued", "running", "completed"]
    assert [event["seq"] for event in job.events(after=2)] == [3]
    assert job.export(tmp_path / "t.csv").read_text().count("\n") == 4
    assert job.export(tmp_path / "t.parquet", "parquet").read_bytes()[:4] == b"PAR1"
    with pytest.raises(LookupError, match="no target model"):
        job.download_model(tmp_path / "m")
    with pytest.raises(ValueError, match="neither csv nor parquet"):
        job.export(tmp_path / "t.xls", "xls")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["t.csv", "t.parquet"]


def test_a_refusal_names_the_field_in_words(client):
    with pytest.raises(ApiError) as caught:
        client.submit({"kind": "study", "spec": {"workload": "tiny", "trials": 0}})
    assert caught.value.status == 400
    assert str(caught.value).startswith("spec.trials: must be a whole number")


def test_a_token_that_opens_nothing_is_401_and_no_server_is_unreachable(server):
    with pytest.raises(ApiError) as caught:
        Client(server.url, "fb_no").me()
    assert caught.value.status == 401


def test_nobody_listening_is_unreachable(monkeypatch):
    monkeypatch.setattr(transport, "PAUSES_S", (0.0, 0.0))
    with pytest.raises(Unreachable, match="cannot be reached"):
        Client("http://127.0.0.1:9", "t").me()


class Flaky(http.server.BaseHTTPRequestHandler):
    """A server that fails in a prescribed way before it answers."""

    answers: list[tuple[int, dict[str, str], bytes]] = []
    seen: list[tuple[str, str | None]] = []

    def do_POST(self):  # noqa: N802
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_GET(self):  # noqa: N802
        Flaky.seen.append((self.command, self.headers.get("Idempotency-Key")))
        status, headers, body = Flaky.answers.pop(0)
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Stay silent."""


@pytest.fixture
def flaky(monkeypatch):
    monkeypatch.setattr(transport, "PAUSES_S", (0.0, 0.0, 0.0))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Flaky.seen = []
    yield Client(f"http://127.0.0.1:{server.server_port}", "t")
    server.shutdown()
    server.server_close()


DOWN = (503, {}, b"down")
IN_FLIGHT = (409, {}, b'{"type": "urn:forebay:problem:in-flight", "status": 409}')
GOOD = (202, {}, b'{"id": "x", "state": "queued"}')


def test_a_post_is_sent_again_under_the_same_key(flaky):
    Flaky.answers = [DOWN, IN_FLIGHT, (429, {"Retry-After": "0"}, b"{}"), GOOD]
    assert flaky.submit(STUDY).id == "x"
    keys = {key for _, key in Flaky.seen}
    assert (len(Flaky.seen), len(keys)) == (4, 1)
    assert None not in keys


def test_a_server_that_stays_down_is_given_up(flaky):
    Flaky.answers = [DOWN] * 4
    with pytest.raises(Unreachable, match="503"):
        flaky.me()
    assert Flaky.answers == []


@pytest.mark.parametrize(
    "answer", [(200, {}, b"<html>"), (200, {}, b"[]"), (302, {"Location": "http://e/"}, b"")]
)
def test_what_answers_otherwise_is_no_forebay_server(flaky, answer):
    Flaky.answers = [answer]
    with pytest.raises(Unreachable, match="does not answer like a Forebay server"):
        flaky.me()


def test_the_token_never_follows_an_address_to_another_host(flaky):
    Flaky.answers = [(200, {}, b'{"items": [1], "next": "http://evil.example/api/v1/jobs?cursor=x"}'),
                     (200, {}, b'{"items": [2], "next": null}')]  # fmt: skip
    assert list(flaky.pages("/api/v1/jobs")) == [1, 2]
    assert len(Flaky.seen) == 2


def test_a_download_that_breaks_leaves_no_half_file(flaky, tmp_path):
    Flaky.answers = [(200, {"Content-Length": "100"}, b"short")]
    with pytest.raises(Unreachable):
        flaky.transport.download("/x", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_the_example_files_are_jobs_of_known_kinds():
    folder = Path(__file__).resolve().parents[2] / "examples"
    checks = {
        "study": lambda spec: StudySpec.from_dict(spec).workload,
        "training": lambda spec: training.check_spec(spec, ClusterFacts(4))["workload"],
        "overlap": lambda spec: overlap.check_spec(spec)["program"],
    }
    seen = set()
    for path in folder.glob("*.yaml"):
        body = parse_body(parse_text(path.read_text(), path.name))
        assert checks[body.kind](body.spec)
        seen.add(body.kind)
    assert seen == set(checks)
