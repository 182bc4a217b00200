"""`forebay up` as a user types it: the whole platform, its parts killed one by one, then itself."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from forebay.supervisor.directory import CLONE, DataDirectory
from forebay.supervisor.runtime import READY, Runtime, read_runtime

pytestmark = pytest.mark.platform
PARTS = ("web", "tuner", "coordinator", "recovery", "beat", "valkey", "postgres")
RECOVERY_S = 60
EMBEDDED = {"DATABASE_URL", "BROKER_URL", "RAY_ADDRESS", "FOREBAY_STATIC", "FOREBAY_DEBUG", "FOREBAY_DATA"}
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in EMBEDDED and "PYTEST" not in key}


def forebay(data: Path, *arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    """Run a command of the platform on one data directory."""
    return subprocess.run(
        [sys.executable, "-m", "forebay.cli.main", *arguments, "--data-dir", str(data)],
        capture_output=True, text=True, env=ENVIRONMENT, cwd="/", check=False, timeout=240, **options,
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


def eventually(condition: Callable[[], object], seconds: float = RECOVERY_S) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def runtime_of(data: Path) -> Runtime:
    runtime = read_runtime(data / "runtime.json")
    assert runtime is not None
    return runtime


def is_ready(runtime: Runtime) -> bool:
    try:
        with urllib.request.urlopen(f"{runtime.url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def processes_of(data: Path) -> list[str]:
    """Command lines of every process that was told about the data directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(data) in told and int(entry.name) != os.getpid():
            found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """The data directory of a platform that runs while this module is tested."""
    path = Path(tempfile.mkdtemp(prefix="fb-", dir="/tmp"))
    started = forebay(path, "up", "--detach", "--no-demo")
    assert started.returncode == 0, started.stderr
    yield path
    forebay(path, "down")
    DataDirectory(path).delete_contents()
    (path / "forebay.lock").unlink()
    path.rmdir()


def test_it_answers_and_printed_one_link(data: Path) -> None:
    runtime = runtime_of(data)
    assert runtime.state == READY
    assert is_ready(runtime)
    assert set(PARTS) <= runtime.parts.keys()
    assert eventually(lambda: "forebay     | workloads done" in (data / "logs" / "forebay.log").read_text())


def test_its_secrets_are_private(data: Path) -> None:
    names = ["secret_key", "ray_token", "token", "runtime.json"]
    assert {stat.S_IMODE((data / name).stat().st_mode) for name in names} == {0o600}
    assert all((data / name).read_text().strip() for name in names)


def test_a_second_start_names_the_first_and_changes_nothing(data: Path) -> None:
    before = runtime_of(data)
    for mode in ((), ("--detach",)):
        second = forebay(data, "up", *mode)
        assert second.returncode == 4
        assert f"already running on {data} at {before.url}" in second.stderr
        assert "Traceback" not in second.stderr
    assert runtime_of(data).parts == before.parts


def test_the_doctor_finds_it_running(data: Path) -> None:
    examined = forebay(data, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(examined.stdout)["checks"]}
    assert examined.returncode == 0
    assert checks["running"]["detail"].startswith(f"ready at {runtime_of(data).url}")


@pytest.mark.parametrize("name", PARTS)
def test_a_killed_part_comes_back_and_nothing_is_lost(data: Path, name: str) -> None:
    before = runtime_of(data)
    with psycopg.connect(before.database_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS told (part text)")
        connection.execute("INSERT INTO told VALUES (%s)", [name])
    killed = before.parts[name]
    killed.send(signal.SIGKILL)

    def is_back() -> bool:
        now = runtime_of(data)
        return now.parts[name] != killed and now.parts[name].is_alive() and is_ready(now)

    assert eventually(is_back), (data / "logs" / "forebay.log").read_text()[-3000:]
    with psycopg.connect(before.database_url) as connection:
        kept = connection.execute("SELECT count(*) FROM told WHERE part = %s", [name]).fetchone()
    assert kept == (1,)
    others = [part for part in PARTS if part != name]
    assert {part: runtime_of(data).parts[part] for part in others} == {
        part: before.parts[part] for part in others
    }


def test_a_killed_supervisor_takes_its_parts_along_and_the_next_start_goes_on(data: Path) -> None:
    before = runtime_of(data)
    before.supervisor.send(signal.SIGKILL)
    again = forebay(data, "up", "--detach", "--no-demo")
    assert again.returncode == 0, again.stderr
    now = runtime_of(data)
    assert now.supervisor != before.supervisor
    assert now.url == before.url
    assert [name for name, part in before.parts.items() if part.is_alive()] == []
    assert is_ready(now)
    with psycopg.connect(now.database_url) as connection:
        assert connection.execute("SELECT count(*) > 0 FROM told").fetchone() == (True,)


def test_without_a_next_start_a_killed_supervisor_leaves_no_orphans(data: Path) -> None:
    before = runtime_of(data)
    before.supervisor.send(signal.SIGKILL)
    assert eventually(lambda: not any(part.is_alive() for part in before.parts.values()))
    assert eventually(lambda: not processes_of(data)), processes_of(data)
    assert "database system is shut down" in (data / "logs" / "postgres.log").read_text().splitlines()[-1]
    cleaned = forebay(data, "down")
    assert cleaned.returncode == 0
    started = forebay(data, "up", "--detach", "--no-demo")
    assert started.returncode == 0, started.stderr


def test_down_stops_everything(data: Path) -> None:
    before = runtime_of(data)
    stopped = forebay(data, "down")
    assert (stopped.returncode, stopped.stderr) == (0, f"stopped {before.url}\n")
    assert processes_of(data) == []
    assert not (data / "runtime.json").exists()
    again = forebay(data, "down")
    assert (again.returncode, again.stderr) == (0, f"nothing runs in {data}\n")


def test_in_the_foreground_the_link_is_the_only_output_and_ctrl_c_ends_it(data: Path) -> None:
    command = [sys.executable, "-m", "forebay.cli.main", "up", "--no-demo", "--data-dir", str(data)]
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process that writes it)
    with (
        said,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=said, text=True, env=ENVIRONMENT, cwd="/"
        ) as process,
    ):
        assert process.stdout is not None
        link = process.stdout.readline()
        said.seek(0)
        runtime = runtime_of(data)
        assert link.startswith(f"{runtime.url}/"), said.read()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        assert process.wait(60) == 0
    assert processes_of(data) == []


def test_stopping_during_the_start_leaves_nothing(data: Path) -> None:
    command = [sys.executable, "-m", "forebay.cli.main", "up", "--no-demo", "--data-dir", str(data)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=ENVIRONMENT, cwd="/") as process:
        assert eventually(lambda: (data / "runtime.json").exists())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert processes_of(data) == []


def ordinary_python() -> tuple[str, dict[str, str]] | None:
    """An interpreter and its environment that another account can use with this very installation."""
    packages = Path(psycopg.__file__).parents[1]
    for python in (sys.executable, "/usr/bin/python3.11"):
        environment = ENVIRONMENT | {
            "PYTHONPATH": f"{CLONE}:{CLONE / 'platform'}:{packages}",
            "HOME": "/nonexistent",
        }
        probe = [python, "-c", "import psycopg, django, uvicorn, celery, forebay.cli.main"]
        try:
            done = subprocess.run(
                probe, user="nobody", env=environment, cwd="/", capture_output=True, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python, environment
    return None


@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to become somebody else; the other tests ran as one"
)
def test_it_runs_for_an_ordinary_user() -> None:
    usable = ordinary_python()
    if usable is None:
        pytest.skip("no other account can read this installation")
    python, environment = usable
    path = Path(tempfile.mkdtemp(prefix="fb-", dir="/tmp"))
    os.chown(path, 65534, 65534)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [python, "-P", "-m", "forebay.cli.main", *arguments, "--data-dir", str(path)]
        return subprocess.run(
            command, user=65534, group=65534, extra_groups=[], env=environment, cwd="/", check=False,
            capture_output=True, text=True,
        )  # fmt: skip

    try:
        started = run("up", "--detach", "--no-demo", "--json")
        assert started.returncode == 0, started.stderr
        runtime = runtime_of(path)
        assert json.loads(started.stdout)["url"] == runtime.url
        assert is_ready(runtime)
        owners = {
            Path(f"/proc/{part.pid}").stat().st_uid for part in runtime.parts.values() if part.is_alive()
        }
        assert owners == {65534}
        assert not (path / "postgres").is_symlink()
    finally:
        assert run("down").returncode == 0
        DataDirectory(path).delete_contents()
        (path / "forebay.lock").unlink()
        path.rmdir()
