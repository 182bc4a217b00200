"""Secrets that are generated once, into files only their owner reads."""

import os
import secrets
from pathlib import Path


def ensure_secret(path: Path, size_bytes: int = 48) -> str:
    """Return the secret in the file, generating it on first use; loosened permissions are tightened."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        path.chmod(0o600)
        if text := path.read_text().strip():
            return text
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(size_bytes))
    return path.read_text().strip()


def store_secret(path: Path, text: str) -> None:
    """Replace a secret by one that somebody else generated."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
