"""What the processes are told."""

from pathlib import Path

import pytest

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.environment import given_addresses, part_environment
from forebay.supervisor.errors import BadSetting

DATA = DataDirectory(Path("/data"))


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "FOREBAY_SECRET_KEY", "FOREBAY_STATIC", "FOREBAY_URL"):
        monkeypatch.delenv(name, raising=False)


def environment(public_url: str | None = None) -> dict[str, str]:
    return part_environment(
        DATA, port=8642, database_url="postgresql://d", broker_url="redis://b", public_url=public_url
    )


@pytest.mark.parametrize(
    ("variables", "rule"),
    [
        ({"RAY_ADDRESS": "ray://head:10001"}, "without one can run any code"),
        ({"RAY_ADDRESS": "head:6379"}, "without one can run any code"),
        ({"RAY_ADDRESS": "auto"}, "without one can run any code"),
        ({"DATABASE_URL": "mysql://x"}, "DATABASE_URL must begin with postgresql://"),
        ({"DATABASE_URL": "sqlite:///x"}, "DATABASE_URL must begin with postgresql://"),
        (
            {"DATABASE_URL_FILE": "/no/such/file"},
            "DATABASE_URL_FILE names /no/such/file, which cannot be read",
        ),
    ],
)
def test_what_is_unsafe_or_impossible_is_refused(variables: dict[str, str], rule: str) -> None:
    with pytest.raises(BadSetting, match=rule):
        given_addresses(variables).check()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RAY_ADDRESS": ""},
        {"RAY_ADDRESS": "local"},
        {"RAY_ADDRESS": "ray://head:10001", "RAY_AUTH_TOKEN": "secret"},
        {"RAY_ADDRESS": "ray://head:10001", "RAY_AUTH_TOKEN_PATH": "/run/secrets/ray"},
        {"DATABASE_URL": "postgresql://user@host/db"},
    ],
)
def test_what_is_safe_is_accepted(variables: dict[str, str]) -> None:
    given_addresses(variables).check()


def test_an_address_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://user:secret@host/db\n")
    assert (
        given_addresses({"DATABASE_URL_FILE": str(tmp_path / "url")}).database_url
        == "postgresql://user:secret@host/db"
    )


def test_the_clients_server_is_not_taken_for_our_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_URL", "https://another.example.org")
    monkeypatch.setenv("FOREBAY_TOKEN", "secret-of-another-server")
    assert environment()["FOREBAY_URL"] == "http://127.0.0.1:8642"
    assert environment("https://ours.example.org")["FOREBAY_URL"] == "https://ours.example.org"
    assert "FOREBAY_TOKEN" not in environment()


def test_local_ray_is_protected_by_the_generated_token() -> None:
    told = environment()
    assert told["RAY_AUTH_MODE"] == "token"
    assert told["RAY_AUTH_TOKEN_PATH"] == "/data/ray_token"


def test_a_token_file_of_a_remote_ray_reaches_ray_and_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/run/secrets/ray")
    told = environment()
    assert told["RAY_ADDRESS"] == "head:6379"
    assert told["RAY_AUTH_TOKEN_PATH"] == told["RAY_AUTH_TOKEN_FILE"] == "/run/secrets/ray"


@pytest.mark.parametrize("address", ["", "local"])
def test_local_ray_has_no_address(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert "RAY_ADDRESS" not in environment()


def test_secrets_of_the_operator_replace_the_generated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment()["FOREBAY_SECRET_KEY_FILE"] == "/data/secret_key"
    monkeypatch.setenv("FOREBAY_SECRET_KEY", "given")
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    told = environment()
    assert "FOREBAY_SECRET_KEY_FILE" not in told
    assert "RAY_AUTH_TOKEN_PATH" not in told
    assert told["RAY_AUTH_TOKEN"] == "given"
