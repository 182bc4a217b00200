"""The commands that talk to a server, against a server, with their exit codes."""

import io
import json
import sys
import threading
from uuid import uuid4

import pytest
from django.db import connection

from forebay import transport
from forebay.cli.main import main
from forebay.servers import remembered
from jobs.models import Job
from web.models import ApiToken

STUDY = "kind: study\nname: sweep\nspec: {workload: tiny, trials: 3}\nobjective: {at_least: 0.8}\n"


@pytest.fixture
def forebay(server, monkeypatch, capsys):
    """Run the command line as a shell would; returns exit code, standard output, standard error."""
    monkeypatch.setenv("FOREBAY_URL", server.url)
    monkeypatch.setenv("FOREBAY_TOKEN", server.token)
    monkeypatch.setattr(transport, "PAUSES_S", (0.0,))

    def run(*arguments, stdin=None):
        monkeypatch.setattr(sys, "argv", ["forebay", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def finish_soon(server, **outcome):
    """End the newest job a moment from now, as its driver would."""

    def act():
        try:
            while not (job := Job.objects.order_by("-created_at").first()):
                pass
            server.finish(str(job.pk), **outcome)
        finally:
            connection.close()

    timer = threading.Timer(0.3, act)
    timer.start()
    return timer


def test_submit_prints_the_id_and_only_the_id(forebay, file):
    code, out, err = forebay("submit", file)
    assert (code, out.strip()) == (0, str(Job.objects.get().pk))
    assert "/studies/" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("outcome", "code", "words"),
    [
        ({}, 0, "completed: best 0.9"),
        ({"metric": 0.5}, 7, "objective not met: at least 0.8, the best metric is 0.5"),
        ({"metric": None}, 7, "there is no metric"),
        ({"state": "failed", "reason": "no valid trial"}, 1, "failed: no valid trial"),
        ({"state": "cancelled"}, 1, "cancelled"),
    ],
)
def test_submit_and_wait_tells_the_outcome_by_its_exit_code(forebay, server, file, outcome, code, words):
    timer = finish_soon(server, **outcome)
    got, out, err = forebay("submit", file, "--wait", "--json")
    timer.join()
    assert (got, words in err) == (code, True), err
    assert json.loads(out)["id"] == str(Job.objects.get().pk)


def test_waiting_no_longer_leaves_the_job_going_on(forebay, file):
    code, out, err = forebay("submit", file, "--wait", "--timeout", "0.4")
    assert (code, out.strip()) == (5, str(Job.objects.get().pk))
    assert "it goes on" in err
    assert Job.objects.get().state == "queued"


def test_an_interrupt_while_waiting_leaves_the_job_going_on(forebay, file, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("forebay.client.Job.refresh", interrupted)
    code, _, err = forebay("submit", file, "--wait")
    assert (code, "goes on" in err) == (130, True)


def test_values_are_replaced_on_the_command_line_and_the_file_may_be_standard_input(forebay):
    code, out, _ = forebay(
        "submit", "-", "--set", "spec.trials=5", "--set", "name=other", "--json", stdin=STUDY
    )
    job = json.loads(out)
    assert (code, job["name"], job["spec"]["trials"]) == (0, "other", 5)


def test_the_same_key_submits_once(forebay, file):
    first, second = (forebay("submit", file, "--key", "sha")[1] for _ in range(2))
    assert (first, Job.objects.count()) == (second, 1)
    assert forebay("submit", file, "--key", "sha", "--set", "spec.trials=9")[0] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["submit", "FILE", "--set", "spec.trials=0"], 2, "spec.trials: must be a whole number"),
        (["submit", "FILE", "--set", "kind=nap"], 2, "kind: unknown kind 'nap'"),
        (["submit", "FILE", "--set", "team=rivals"], 2, "team: you have no team 'rivals'"),
        (["submit", "FILE", "--set", "nonsense"], 2, "--set nonsense"),
        (["submit", "none.yaml"], 2, "none.yaml"),
        (["submit"], 2, "FILE"),
        (["submit", "FILE", "--timeout", "-1"], 2, "--timeout"),
        (["show", "17"], 2, "'17' is not the id of a job"),
        (["show", str(uuid4())], 2, "no such thing"),
        (["jobs", "--state", "done"], 2, "state: 'done' is none of"),
        (["jobs", "--limit", "0"], 2, "--limit"),
        (["jobs", "--token", "fb_wrong"], 3, "unknown, expired or revoked"),
        (["jobs", "--token", "READER"], 0, "no jobs"),
        (["submit", "FILE", "--token", "READER"], 3, "lacks the scope 'submit'"),
        (["jobs", "--url", "http://127.0.0.1:9"], 6, "cannot be reached"),
        (["jobs", "--url", "nonsense"], 2, "is not the address of a server"),
        (["token", "create", "--name", "x", "--scope", "root"], 2, "--scope"),
        (["token", "revoke", "x"], 2, "not the id of a token"),
        (["login", "ftp://x", "--token", "x"], 2, "must begin with http"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_an_exit_code(forebay, server, file, arguments, code, words):
    values = {"FILE": file, "READER": server.new_token()}
    got, out, err = forebay(*(values.get(argument, argument) for argument in arguments))
    assert (got, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


def test_without_any_server_known_it_is_not_reachable_and_without_a_token_not_signed_in(forebay, monkeypatch):
    monkeypatch.delenv("FOREBAY_TOKEN")
    assert forebay("jobs")[0] == 3
    monkeypatch.delenv("FOREBAY_URL")
    code, _, err = forebay("jobs")
    assert (code, "forebay up" in err) == (6, True)


def test_jobs_and_show_are_for_people_or_for_programs(forebay, server, file):
    job_id = forebay("submit", file)[1].strip()
    server.finish(job_id)
    assert "completed · 3 of 3 trials · best 0.9" in forebay("jobs")[1]
    assert [row["id"] for row in json.loads(forebay("jobs", "--json")[1])["items"]] == [job_id]
    assert json.loads(forebay("jobs", "--state", "failed", "--json")[1])["items"] == []
    assert "trial 1, 0.9" in forebay("show", job_id)[1]
    assert json.loads(forebay("show", job_id, "--json")[1])["objective_met"] is True


def test_watch_prints_each_event_once_and_ends_with_the_job(forebay, server, file):
    job_id = forebay("submit", file)[1].strip()
    timer = finish_soon(server)
    code, out, _ = forebay("watch", job_id)
    timer.join()
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["1", "2", "3"])
    document = json.loads(forebay("watch", job_id, "--after", "1", "--json")[1])
    assert [event["seq"] for event in document["events"]] == [2, 3]


def test_watching_a_job_that_does_not_end_times_out_with_one_document(forebay, file):
    job_id = forebay("submit", file)[1].strip()
    code, out, _ = forebay("watch", job_id, "--timeout", "0.1", "--json")
    assert (code, len(json.loads(out)["events"])) == (5, 1)


def test_cancel_and_resume_and_doing_it_twice(forebay, file):
    job_id = forebay("submit", file)[1].strip()
    assert [forebay(c, job_id)[0] for c in ("cancel", "cancel", "resume", "resume")] == [0, 4, 0, 4]
    assert json.loads(forebay("cancel", job_id, "--json")[1])["state"] == "cancelled"


def test_trials_are_exported_to_a_file_or_to_standard_output(forebay, server, file, tmp_path):
    job_id = forebay("submit", file)[1].strip()
    server.finish(job_id)
    out = tmp_path / "trials.csv"
    assert forebay("export", job_id, "--out", out)[0] == 0
    assert out.read_text().startswith("trial,state,")
    report = json.loads(
        forebay("export", job_id, "--format", "parquet", "--out", tmp_path / "t.parquet", "--json")[1]
    )
    assert (report["format"], report["bytes"]) == ("parquet", (tmp_path / "t.parquet").stat().st_size)
    assert forebay("export", job_id, "--out", tmp_path / "no" / "t.csv")[0] == 2
    assert forebay("export", job_id, "--out", "-")[1].startswith("trial,state,")
    assert forebay("export", job_id, "--out", "-", "--json")[0] == 2
    assert forebay("export", job_id)[0] == 2


def test_login_remembers_the_server_and_the_token(forebay, server, monkeypatch):
    monkeypatch.delenv("FOREBAY_URL")
    monkeypatch.delenv("FOREBAY_TOKEN")
    assert forebay("login", server.url, "--token", "fb_wrong")[0] == 3
    assert remembered() == []
    code, _, err = forebay("login", server.url + "/", "--token", "-", stdin=server.token + "\n")
    assert (code, f"as {server.user.username}" in err, server.token in err) == (0, True, False)
    assert forebay("jobs")[0] == 0


def test_tokens_are_made_listed_and_revoked(forebay, server):
    code, out, err = forebay(
        "token", "create", "--name", "ci", "--scope", "submit", "--team", "demo", "--days", "7"
    )
    assert (code, out.count("\n"), "never shown again" in err) == (0, 1, True)
    assert forebay("jobs", "--token", out.strip())[0] == 0
    listed = json.loads(forebay("token", "list", "--json")[1])["items"]
    assert [row["name"] for row in listed] == ["ci", "test"]
    assert "ci" in forebay("token", "list")[1]
    assert forebay("token", "revoke", listed[0]["id"])[0] == 0
    assert forebay("jobs", "--token", out.strip())[0] == 3
    assert ApiToken.objects.get(name="ci").expires_at is not None
