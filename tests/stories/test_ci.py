"""What somebody who writes a pipeline tries first, in a real shell."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.platform, pytest.mark.timeout(600)]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits.yaml"


def new_token(platform):
    made = platform.run("token", "create", "--name", "ci", "--scope", "submit", "--team", "demo", "--json")
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


@pytest.fixture(scope="module")
def token(platform):
    return new_token(platform)


def secret_of(token):
    return next(value for value in token.values() if isinstance(value, str) and value.count("_") == 2)


def curl(platform, secret, *arguments, data):
    """Run curl as the README shows it; return status and body."""
    answer = subprocess.run(
        ["curl", "-s", "-w", "\n%{http_code}", "-X", "POST", f"{platform.url}/api/v1/jobs",
         "-H", f"Authorization: Bearer {secret}", *arguments, "--data-binary", data],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    body, _, status = answer.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_the_same_key_submits_once_and_another_body_is_refused(platform, token):
    secret = secret_of(token)
    headers = ("-H", "Content-Type: application/yaml", "-H", "Idempotency-Key: commit-1")
    small = "kind: study\nspec: {workload: digits-mlp, trials: 2, epochs: 1, top_k: 1}\n"
    first = curl(platform, secret, *headers, data=small)
    again = curl(platform, secret, *headers, data=small)
    assert (first[0], again[0]) == (202, 202)
    assert first[1]["id"] == again[1]["id"]
    assert curl(platform, secret, *headers, data=small.replace("2", "3"))[0] == 422
    assert platform.wait(first[1]["id"], "completed", "failed")["state"] == "completed"


def test_a_broken_file_names_the_field_and_the_rule(platform, token):
    status, body = curl(
        platform, secret_of(token), "-H", "Content-Type: application/json",
        data='{"kind": "study", "spec": {"workload": "digits-mlp", "trials": -1}}',
    )  # fmt: skip
    assert status == 400
    assert [error["pointer"] for error in body["errors"]] == ["/spec/trials"]


def test_waiting_tells_by_the_exit_code_whether_the_objective_was_met(platform, token):
    environment = platform.environment | {"FOREBAY_URL": platform.url, "FOREBAY_TOKEN": secret_of(token)}
    settings = ("--set=spec.trials=3", "--set=spec.epochs=2", "--set=spec.top_k=1")
    command = (sys.executable, "-m", "forebay.cli.main", "submit", str(EXAMPLE), "--wait", *settings)
    running = {
        bound: subprocess.Popen(
            [*command, f"--set=objective.at_least={bound}"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for bound in ("0.05", "0.9999999")
    }  # fmt: skip
    said = {bound: process.communicate(timeout=480)[1] for bound, process in running.items()}
    assert {bound: process.returncode for bound, process in running.items()} == {
        "0.05": 0,
        "0.9999999": 7,
    }, said


def test_a_revoked_token_opens_nothing_and_the_audit_log_says_who_revoked_it(platform):
    token = new_token(platform)
    secret = secret_of(token)
    assert platform.run("jobs", FOREBAY_URL=platform.url, FOREBAY_TOKEN=secret).returncode == 0
    assert platform.run("token", "revoke", token["id"]).returncode == 0
    assert platform.run("jobs", FOREBAY_URL=platform.url, FOREBAY_TOKEN=secret).returncode == 3
    audit = platform.items("audit?limit=500")
    assert any(row["action"] == "token.revoke" for row in audit)
    logs = "".join(path.read_text(errors="replace") for path in (platform.data / "logs").glob("*.log"))
    assert secret not in logs
