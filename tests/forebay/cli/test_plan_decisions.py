"""Approving and rejecting plans, and injecting faults, from the command line against a server."""

import json
import sys
from uuid import uuid4

import pytest

from cluster.models import Membership, Team, User
from forebay import transport
from forebay.cli.main import main
from forebay.cli.progress import line_of
from jobs.core.body import parse_body
from jobs.models import Injection, Job, Reconfiguration, TrainingRun
from jobs.services.reconfigurations import Proposal, propose
from jobs.services.submission import submit_job

PIPELINE = {"stages": [{"layers": 2}, {"layers": 2}]}


@pytest.fixture
def forebay(server, monkeypatch, capsys):
    """Run the command line as a shell would; returns exit code, standard output, standard error."""
    monkeypatch.setenv("FOREBAY_URL", server.url)
    monkeypatch.setenv("FOREBAY_TOKEN", server.token)
    monkeypatch.setattr(transport, "PAUSES_S", (0.0,))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["forebay", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run


@pytest.fixture
def training(server):
    """A running training job of somebody else than the caller."""
    owner = User.objects.create(username="grace")
    team = Team.objects.get()
    Membership.objects.create(team=team, user=owner, role="researcher")
    spec = {"workload": "pydoc-gpt", "layout": {"replicas": [PIPELINE] * 2}, "microbatches": 8}
    body = parse_body({"kind": "training", "name": "gpt", "spec": spec})
    job = submit_job(body=body, team=team, owner=owner, actor="grace")
    Job.objects.filter(pk=job.pk).update(state="running")
    TrainingRun.objects.filter(pk=job.pk).update(epoch=1)
    return job


@pytest.fixture
def plan(training):
    before = TrainingRun.objects.get().layout
    after = json.loads(json.dumps(before))
    after["replicas"][0]["microbatches"], after["replicas"][1]["microbatches"] = 3, 5
    proposal = Proposal(
        kind="rebalance", epoch=1, before=before, plan=after, baseline_iteration_s=2.0,
        predicted_iteration_s=1.5, predicted_pause_s=0.2,
    )  # fmt: skip
    return propose(job_id=training.pk, proposal=proposal, by_policy=False)


def test_a_plan_is_shown_and_approved_once(forebay, plan):
    code, out, err = forebay("approve", plan.pk, "--comment", "go", "--json")
    answer = json.loads(out)
    assert (code, answer["state"], answer["comment"]) == (0, "approved", "go")
    assert "rebalance: 2 s an iteration, 1.5 s with the plan (estimated), after a pause of 0.2 s" in err
    assert "r0(2)|r1(2) x3, r2(2)|r3(2) x5" in err
    assert forebay("approve", plan.pk)[0] == 4
    assert forebay("reject", plan.pk)[0] == 4


def test_a_plan_is_rejected_with_a_comment(forebay, plan):
    code, out, err = forebay("reject", plan.pk, "--comment", "not now")
    assert (code, out) == (0, "")
    assert "rejected by ada" in err
    assert Reconfiguration.objects.get().comment == "not now"


def test_what_one_asked_for_oneself_needs_a_broken_glass(forebay, server, training, plan):
    Reconfiguration.objects.update(requester=server.user)
    code, _, err = forebay("approve", plan.pk)
    assert (code, "whoever asks does not approve" in err) == (3, True)
    assert forebay("approve", plan.pk, "--break-glass", "I am alone")[0] == 0


def test_a_plan_for_a_job_that_moved_on_is_a_conflict(forebay, plan):
    TrainingRun.objects.update(epoch=2)
    code, _, err = forebay("approve", plan.pk)
    assert (code, "moved on" in err) == (4, True)


def test_lending_is_stopped_and_allowed_again(forebay, training):
    code, out, _ = forebay("lend", "off", training.pk, "--reason", "a demonstration", "--json")
    assert (code, json.loads(out)["status"], json.loads(out)["reason"]) == (0, "off", "a demonstration")
    code, _, err = forebay("lend", "on", training.pk)
    assert (code, "may be used" in err) == (0, True)
    Job.objects.filter(pk=training.pk).update(state="completed")
    assert forebay("lend", "off", training.pk)[0] == 4


def test_a_fault_is_injected(forebay, training):
    code, out, _ = forebay("inject", "slow", "--job", training.pk, "--rank", 1, "--factor", 3, "--json")
    assert (code, json.loads(out)["factor"]) == (0, 3.0)
    code, _, err = forebay("inject", "stall", "--job", training.pk, "--rank", 2, "--seconds", 5)
    assert (code, err.strip()) == (0, "rank 2: stall for 5 s")
    assert Injection.objects.count() == 2
    assert forebay("inject", "stop", "--job", training.pk, "--rank", 9)[0] == 2
    Job.objects.update(state="completed")
    assert forebay("inject", "stop", "--job", training.pk, "--rank", 1)[0] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["approve", "17"], 2, "'17' is not the id of a reconfiguration"),
        (["approve", str(uuid4())], 2, "no such thing"),
        (["reject"], 2, "RECONFIGURATION"),
        (["inject", "burn", "--job", str(uuid4()), "--rank", "1"], 2, "'burn' is not one of"),
        (["inject", "slow", "--rank", "1"], 2, "--job"),
        (["inject", "slow", "--job", "x", "--rank", "1"], 2, "--job: 'x' is not the id of a job"),
        (["inject", "slow", "--job", str(uuid4()), "--rank", "-1"], 2, "--rank"),
        (["inject", "slow", "--job", str(uuid4()), "--rank", "1", "--factor", "0.5"], 2, "--factor"),
        (["inject", "slow", "--job", str(uuid4()), "--rank", "1"], 2, "no such thing"),
    ],
)
def test_wrong_input_is_one_sentence_with_its_exit_code(forebay, arguments, code, words):
    got, out, err = forebay(*arguments)
    assert (got, words in err) == (code, True), err
    assert "Traceback" not in err


def test_a_training_jobs_progress_is_told_in_steps():
    summary = {"best": None, "step": 40, "steps_total": 200, "loss": 2.53211, "iteration_s": 0.4}
    data = {"state": "running", "substate": "training", "summary": summary}
    assert line_of(data) == "running (training) · step 40 of 200 · loss 2.532"
