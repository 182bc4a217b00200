"""The recipe for GitHub Actions, its steps run as they stand in the file, against a server."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from django.db import connection

from jobs.models import Job

CI = Path(__file__).resolve().parents[2] / "examples" / "ci"
STUDY = "kind: study\nname: 'a | b'\nspec: {workload: tiny}\nobjective: {at_least: 0.8}\n"


@pytest.fixture
def action(server, tmp_path):
    """Run the action's step with these inputs; returns exit code, summary, outputs."""
    (step,) = yaml.safe_load((CI / "action.yml").read_text())["runs"]["steps"]
    (tmp_path / "study.yaml").write_text(STUDY)

    def run(**inputs):
        given = {"inputs.url": server.url, "inputs.token": server.token, "inputs.file": "study.yaml",
                 "inputs.set": "", "inputs.timeout": "60", "github.repository": "o/r", "github.sha": "c0ffee",
                 "github.run_attempt": "1", "github.action_path": str(CI)}  # fmt: skip
        given |= {f"inputs.{name}": value for name, value in inputs.items()}
        environment = {**os.environ, "GITHUB_STEP_SUMMARY": "summary", "GITHUB_OUTPUT": "outputs"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        for name, value in step["env"].items():
            for key, text in given.items():
                value = value.replace("${{ " + key + " }}", text)
            assert "${{" not in value
            environment[name] = value
        command = ["bash", "-e", "-c", step["run"]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, (tmp_path / "summary").read_text(), (tmp_path / "outputs").read_text()

    return run


def finish_when_submitted(server, **outcome):
    def act():
        try:
            while not (job := Job.objects.first()):
                threading.Event().wait(0.1)
            server.finish(str(job.pk), **outcome)
        finally:
            connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_run_that_reaches_its_objective_passes_and_says_so(action, server):
    thread = finish_when_submitted(server)
    code, summary, outputs = action(set="spec.trials=2\n\nname=x | y\n")
    thread.join()
    job = Job.objects.get()
    assert (code, job.name, job.spec["trials"]) == (0, "x | y", 2)
    assert "### Forebay: completed" in summary
    assert "[x \\| y]" in summary
    assert "| lr | 0.1 |" in summary
    assert outputs == f"job={job.pk}\nmetric=0.9\n"


def test_a_run_below_its_objective_fails_and_running_it_again_submits_nothing_new(action, server):
    thread = finish_when_submitted(server, metric=0.5)
    first, again = action(), action()
    thread.join()
    assert (first[0], again[0], Job.objects.count()) == (7, 7, 1)
    assert "the objective was not met" in first[1]


def test_a_bad_file_fails_with_its_own_code_and_an_empty_output(action):
    code, summary, outputs = action(set="spec.trials=0")
    assert (code, "bad input" in summary, outputs) == (2, True, "job=\nmetric=\n")
