"""The compose file and the image, as far as they can be checked without an engine."""

import re
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from forebay.supervisor.parts import WORKER_THREADS

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("forebay:")}


def generate(directory: Path, url: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": "/usr/bin:/bin",
        "SECRETS_DIR": str(directory / "secrets"),
        "ENV_FILE": str(directory / ".env"),
    }
    return subprocess.run(
        [DOCKER / "make-secrets", url], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    made = generate(tmp_path, "https://forebay.example.org:8443/")
    assert made.returncode == 0, made.stderr
    return tmp_path / "secrets"


def test_every_queue_and_every_part_of_the_platform_has_a_service() -> None:
    assert set(SERVICES) == {
        "postgres", "valkey", "setup", "web", "beat", "ray-head", "ray-worker", *WORKER_THREADS,
    }  # fmt: skip
    commands = {name: SERVICES[name]["command"] for name in WORKER_THREADS}
    assert commands == {queue: ["worker", queue, str(threads)] for queue, threads in WORKER_THREADS.items()}


def test_every_secret_is_generated_and_only_used_where_it_is_given(secrets: Path) -> None:
    files = {name: Path(entry["file"]).name for name, entry in COMPOSE["secrets"].items()}
    assert set(files.values()) == {path.name for path in secrets.iterdir()}
    for service in SERVICES.values():
        text = yaml.safe_dump([service.get("environment"), service.get("command")])
        assert set(re.findall(r"/run/secrets/(\w+)", text)) <= set(service.get("secrets", []))
        assert set(service.get("secrets", [])) <= set(files)


def test_generated_secrets_are_long_different_and_closed_to_others(secrets: Path) -> None:
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    values = [(secrets / name).read_text() for name in ("postgres_password", "secret_key", "ray_token")]
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in values)
    assert len(set(values)) == 3
    assert values[0] in (secrets / "database_url").read_text()
    password = (secrets / "valkey_conf").read_text().splitlines()[0].removeprefix("requirepass ")
    assert (secrets / "broker_url").read_text() == f"redis://:{password}@valkey:6379/0"


def test_the_variables_that_compose_wants_are_written(secrets: Path) -> None:
    written = dict(line.split("=", 1) for line in secrets.with_name(".env").read_text().splitlines())
    assert written == {
        "FOREBAY_URL": "https://forebay.example.org:8443/",
        "FOREBAY_HOST": "forebay.example.org",
    }
    wanted = set(re.findall(r"\$\{(\w+)", (DOCKER / "compose.yaml").read_text()))
    assert wanted == set(written)


def test_existing_secrets_are_never_replaced(secrets: Path) -> None:
    before = (secrets / "secret_key").read_text()
    again = generate(secrets.parent, "https://forebay.example.org")
    assert again.returncode == 1
    assert (secrets / "secret_key").read_text() == before


@pytest.mark.parametrize("url", ["", "forebay.example.org", "http://forebay.example.org", "https://"])
def test_an_address_without_tls_is_only_accepted_for_this_machine(tmp_path: Path, url: str) -> None:
    assert generate(tmp_path, url).returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_no_password_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            secret = any(
                word in key for word in ("PASSWORD", "SECRET", "TOKEN", "DATABASE_URL", "BROKER_URL")
            )
            assert not secret or str(value).startswith("/run/secrets/"), f"{name}: {key}"


def test_our_variables_are_ones_that_somebody_reads() -> None:
    settings = "".join(path.read_text() for path in (ROOT / "platform" / "web").glob("*.py"))
    files = ["docker/worker", "platform/web/environment.py"]
    known = settings + "".join((ROOT / name).read_text() for name in files)
    for name in OURS:
        for variable in SERVICES[name]["environment"]:
            if variable != "RAY_AUTH_TOKEN_PATH":  # Ray itself reads it
                assert re.search(rf"\b{variable.removesuffix('_FILE')}\b", known), variable


def test_only_the_web_is_reachable_and_only_from_this_host() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {"web": ["127.0.0.1:8000:8000"]}


def test_trials_cannot_reach_the_secrets_of_the_web() -> None:
    assert {name: SERVICES[name]["secrets"] for name in ("ray-head", "ray-worker")} == {
        "ray-head": ["ray_token"],
        "ray-worker": ["ray_token"],
    }


def test_what_runs_on_is_looked_after() -> None:
    lasting = {name for name, service in SERVICES.items() if service["restart"] == "unless-stopped"}
    assert lasting == set(SERVICES) - {"setup"}
    assert {name for name in lasting if "healthcheck" not in SERVICES[name]} == {"beat"}
    for service in SERVICES.values():
        for needed, condition in service.get("depends_on", {}).items():
            is_once = condition["condition"] == "service_completed_successfully"
            assert is_once == (needed == "setup")
            assert is_once or "healthcheck" in SERVICES[needed]


def test_images_are_pinned_and_ours_runs_without_privileges() -> None:
    assert [service["image"] for service in SERVICES.values() if ":latest" in service["image"]] == []
    assert all(":" in service["image"] for service in SERVICES.values())
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)[-1] == "10001:10001"
    for name in OURS:
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert SERVICES[name]["read_only"] is True


def test_the_image_is_built_from_files_that_exist_and_are_sent() -> None:
    sent = [
        line[1:]
        for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert sorted(copied) == sorted(sent)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    build = SERVICES["web"]["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def test_every_package_of_ours_is_in_the_image() -> None:
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"][
        "include"
    ]
    folders = {name.removesuffix("*") for name in include} - {"web", "forebay"} | {"platform"}
    copied = set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE))
    assert folders <= copied


def test_the_scripts_are_programs_that_a_shell_understands() -> None:
    for name in ("worker", "health", "make-secrets"):
        assert (DOCKER / name).stat().st_mode & 0o111
        checked = subprocess.run(["sh", "-n", DOCKER / name], capture_output=True, text=True, check=False)
        assert checked.stderr == ""
    unknown = subprocess.run([DOCKER / "health", "nothing"], capture_output=True, check=False)
    assert unknown.returncode == 2
