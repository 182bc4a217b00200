"""Reading the environment: typed, and loud when a value makes no sense."""

import ipaddress
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def env_text(name: str, default: str = "") -> str:
    """Return a variable, or the content of the file named by NAME_FILE."""
    if path := os.environ.get(f"{name}_FILE"):
        return Path(path).read_text().strip()
    return os.environ.get(name, default)


def env_bool(name: str, default: bool = False) -> bool:
    """Return a yes/no variable."""
    value = os.environ.get(name, "").strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    if value:
        raise ImproperlyConfigured(f"{name} is '{value}': say true or false")
    return default


def env_int(name: str, default: int, least: int = 0) -> int:
    """Return a whole number of at least `least`."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdigit() or int(value) < least:
        raise ImproperlyConfigured(f"{name} is '{value}': it must be a whole number of at least {least}")
    return int(value)


def env_list(name: str, default: list[str]) -> list[str]:
    """Return a comma-separated variable."""
    value = os.environ.get(name, "")
    return [item.strip() for item in value.split(",") if item.strip()] or default


def env_networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return a comma-separated variable of networks such as 10.1.0.0/16."""
    found = []
    for text in env_list(name, []):
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {error}") from None
    return found


def secret_key(data_dir: Path) -> str:
    """Return the secret key: given, or generated once into a file that only the owner reads."""
    if given := env_text("FOREBAY_SECRET_KEY"):
        return given
    path = data_dir / "secret_key"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:  # another process was faster
        return path.read_text().strip()
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(48))
    return path.read_text().strip()


def database(url: str) -> dict[str, Any]:
    """Return Django's settings for a postgresql:// URL; `?host=` may name a socket directory."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ImproperlyConfigured("DATABASE_URL must begin with postgresql://")
    options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "forebay",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_HEALTH_CHECKS": True,
        "CONN_MAX_AGE": 60,
        "OPTIONS": options,
    }
