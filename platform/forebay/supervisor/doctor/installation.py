"""The installation: packages, bundled servers, the account they run under, socket addresses."""

import os
import pwd
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from forebay.supervisor.account import DEFAULT_NAME, named
from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.doctor.finding import Finding, blocks, ok, warning
from forebay.supervisor.environment import Given, given_addresses
from forebay.supervisor.errors import SupervisorError
from forebay.supervisor.postgres import SOCKET_NAME
from forebay.supervisor.programs import POSTGRES_PACKAGE, package_directory, valkey_program
from forebay.supervisor.sockets import LONGEST_SOCKET_PATH_BYTES, fits

NEEDED = ("django", "celery", "uvicorn", "psycopg", "redis", "torch", "ray", "optuna")
SETUP = "run `make setup`"


def findings(data: DataDirectory) -> list[Finding]:
    about_packages = [packages(NEEDED), ray_imports()]
    try:
        given = given_addresses(os.environ)
        given.check()
    except SupervisorError as error:
        return [*about_packages, blocks("environment", str(error), "correct or unset the variable")]
    servers: list[Finding] = []
    if not given.database_url:
        servers += [service_account(os.geteuid(), os.environ), postgres_runs(), socket_path(data)]
    if not given.broker_url:
        servers.append(valkey_runs())
    return [*about_packages, parts(given), *servers]


def packages(names: tuple[str, ...]) -> Finding:
    found, missing = [], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return blocks("packages", f"missing: {', '.join(missing)}", SETUP)
    return ok("packages", ", ".join(found))


def ray_imports() -> Finding:
    """Ray is imported in a process of its own: it loads much and may take the process down with it."""
    code, output = _printed(sys.executable, "-c", "import ray; print(ray.__version__)")
    if code != 0:
        return blocks("ray", f"cannot be imported: {output}", SETUP)
    return ok("ray", f"Ray {output} can be imported")


def parts(given: Given) -> Finding:
    brought = {
        "DATABASE_URL": given.database_url,
        "BROKER_URL": given.broker_url,
        "RAY_ADDRESS": given.ray_address,
    }
    names = [name for name, value in brought.items() if value]
    return ok(
        "parts", f"replaced by the environment: {', '.join(names)}" if names else "all parts are embedded"
    )


def service_account(uid: int, environment: "os._Environ[str] | dict[str, str]") -> Finding:
    """The account PostgreSQL will run under."""
    if uid != 0:
        try:
            return ok("account", f"PostgreSQL runs as you, {pwd.getpwuid(uid).pw_name}")
        except KeyError:
            return blocks(
                "account", f"user id {uid} is not in /etc/passwd", "add it there, or set DATABASE_URL"
            )
    name = environment.get("FOREBAY_SERVICE_USER", DEFAULT_NAME)
    if named(name):
        return ok("account", f"you are root: PostgreSQL runs as {name}")
    if shutil.which("useradd", path=f"{environment.get('PATH', '')}:/usr/sbin:/sbin"):
        return ok(
            "account", f"you are root: `forebay up` will create the system account {name} for PostgreSQL"
        )
    return blocks(
        "account",
        f"you are root, there is no account {name} and no `useradd` to make one",
        "run as an ordinary user, name an existing account in FOREBAY_SERVICE_USER, or set DATABASE_URL",
    )


def postgres_runs() -> Finding:
    try:
        program = package_directory(POSTGRES_PACKAGE) / "pginstall" / "bin" / "postgres"
    except SupervisorError as error:
        return blocks("postgresql", str(error), SETUP)
    return _runs("postgresql", program, "-V", "DATABASE_URL")


def valkey_runs() -> Finding:
    try:
        program = valkey_program()
    except SupervisorError as error:
        return blocks("valkey", str(error), "set BROKER_URL")
    return _runs("valkey", program, "--version", "BROKER_URL")


def socket_path(data: DataDirectory) -> Finding:
    address = data.postgres / "run" / SOCKET_NAME
    if fits(address):
        return ok("socket path", f"{len(os.fsencode(address))} of {LONGEST_SOCKET_PATH_BYTES} bytes")
    return warning(
        "socket path",
        f"{address} is longer than {LONGEST_SOCKET_PATH_BYTES} bytes; sockets go elsewhere, in private",
        "nothing needs to be done; a shorter --data-dir keeps everything in one place",
    )


def _runs(name: str, program: Path, argument: str, variable: str) -> Finding:
    code, output = _printed(program, argument)
    if code != 0:
        advice = f"check that {program.parent} is not mounted noexec, or set {variable}"
        return blocks(name, f"{program} does not run: {output}", advice)
    return ok(name, output)


def _printed(*command: str | Path) -> tuple[int, str]:
    """Run a program; return its exit code and its last line."""
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""
