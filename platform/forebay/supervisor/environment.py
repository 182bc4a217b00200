"""What the platform's processes are told, and which parts the operator brings along."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from forebay.supervisor.addresses import HOST
from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.errors import BadSetting

LOCAL_RAY = {"", "local"}


@dataclass(frozen=True)
class Given:
    """Addresses from the environment that replace the embedded parts; empty where there is none."""

    database_url: str
    broker_url: str
    ray_address: str
    has_ray_token: bool

    def check(self) -> None:
        """Refuse what cannot work or is not safe."""
        if self.database_url and not self.database_url.startswith(("postgresql://", "postgres://")):
            raise BadSetting("DATABASE_URL must begin with postgresql://")
        if self.ray_address not in LOCAL_RAY and not self.has_ray_token:
            raise BadSetting(
                f"RAY_ADDRESS is {self.ray_address} but there is no token, and whoever reaches a Ray cluster "
                "without one can run any code on it: start it with RAY_AUTH_MODE=token and set RAY_AUTH_TOKEN"
            )


def given_addresses(environment: Mapping[str, str]) -> Given:
    """Read DATABASE_URL, BROKER_URL, RAY_ADDRESS and RAY_AUTH_TOKEN, or the files named by NAME_FILE."""
    return Given(
        database_url=_text(environment, "DATABASE_URL"),
        broker_url=_text(environment, "BROKER_URL"),
        ray_address=_text(environment, "RAY_ADDRESS"),
        has_ray_token=bool(_text(environment, "RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH")),
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    path = environment.get(f"{name}_FILE")
    if not path:
        return environment.get(name, "").strip()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{name}_FILE names {path}, which cannot be read: {error}") from None


def part_environment(
    data: DataDirectory, *, port: int, database_url: str, broker_url: str, public_url: str | None = None
) -> dict[str, str]:
    """The environment of every Django process.

    FOREBAY_URL and FOREBAY_TOKEN of the caller are dropped: they name the server that the command line
    talks to, which may be another one.
    """
    inherited = {
        key: value for key, value in os.environ.items() if key not in {"FOREBAY_URL", "FOREBAY_TOKEN"}
    }
    ours = {
        "DJANGO_SETTINGS_MODULE": "web.settings",
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "FOREBAY_DATA": str(data.path),
        "FOREBAY_URL": public_url or f"http://{HOST}:{port}",
        "PYTHONUNBUFFERED": "1",
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    # Threads would otherwise keep an arena of freed memory each.
    defaults = {"FOREBAY_STATIC": str(data.static), "MALLOC_ARENA_MAX": "2"}
    if not _names(inherited, "FOREBAY_SECRET_KEY"):
        defaults["FOREBAY_SECRET_KEY_FILE"] = str(data.secret_key)
    if inherited.get("RAY_ADDRESS", "") in LOCAL_RAY and not _names(inherited, "RAY_AUTH_TOKEN"):
        defaults["RAY_AUTH_TOKEN_PATH"] = defaults["RAY_AUTH_TOKEN_FILE"] = str(data.ray_token)
    elif "RAY_AUTH_TOKEN_PATH" in inherited and not _names(inherited, "RAY_AUTH_TOKEN"):
        defaults["RAY_AUTH_TOKEN_FILE"] = inherited["RAY_AUTH_TOKEN_PATH"]
    for name in ("DATABASE_URL_FILE", "BROKER_URL_FILE"):
        inherited.pop(name, None)
    if inherited.get("RAY_ADDRESS") in LOCAL_RAY:
        inherited.pop("RAY_ADDRESS")
    return defaults | inherited | ours


def _names(environment: Mapping[str, str], name: str) -> bool:
    return bool(environment.get(name) or environment.get(f"{name}_FILE"))
