"""A real PostgreSQL: who may connect, what survives, what is refused."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from forebay.supervisor.errors import CannotStart, SupervisorError
from forebay.supervisor.postgres import Postgres
from forebay.supervisor.process import identify, wait_until_gone

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def shared() -> Iterator[Postgres]:
    """One server, in a directory that only its owner can enter, for tests that only look."""
    directory = Path(tempfile.mkdtemp(prefix="fb-", dir="/tmp"))
    with Postgres(directory / "pg", disposable=True) as server:
        yield server
    server.destroy()
    shutil.rmtree(directory)


@pytest.fixture
def postgres(short_dir: Path) -> Iterator[Postgres]:
    server = Postgres(short_dir / "pg", disposable=True)
    yield server
    server.stop()
    server.destroy()


def value(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_the_application_is_not_superuser_and_owns_its_database(shared: Postgres) -> None:
    assert value(shared.url, "SELECT usesuper FROM pg_user WHERE usename = current_user") is False
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"
    assert value(shared.url, owner) == "forebay"
    assert value(shared.admin_url, "SELECT usesuper FROM pg_user WHERE usename = current_user") is True


def test_it_listens_on_a_private_socket_only(shared: Postgres) -> None:
    assert value(shared.url, "SHOW listen_addresses") == ""
    assert stat.S_IMODE(shared.sockets.stat().st_mode) == 0o700
    assert stat.S_IMODE(shared.data.stat().st_mode) == 0o700


def test_a_durable_server_writes_through_to_the_disk(short_dir: Path) -> None:
    server = Postgres(short_dir / "pg")
    try:
        with server:
            assert [value(server.url, f"SHOW {name}") for name in ("fsync", "synchronous_commit")] == [
                "on",
                "on",
            ]
            assert value(server.url, "SELECT rolcreatedb FROM pg_roles WHERE rolname = 'forebay'") is False
    finally:
        server.destroy()


@AS_ROOT
def test_as_root_no_directory_above_is_opened(shared: Postgres) -> None:
    assert stat.S_IMODE(shared.directory.parent.stat().st_mode) == 0o700
    assert shared.directory.is_symlink()
    assert shared.data.stat().st_uid == shared.account.uid != 0


@AS_ROOT
def test_as_root_a_reachable_directory_holds_the_data_itself(short_dir: Path) -> None:
    short_dir.chmod(0o711)
    with Postgres(short_dir / "pg", disposable=True) as server:
        assert not server.directory.is_symlink()
        assert server.data.is_relative_to(short_dir)


@AS_ROOT
def test_another_account_cannot_connect(shared: Postgres) -> None:
    psql = [str(shared.programs / "psql"), "-h", str(shared.sockets), "-U", "forebay", "-c", "SELECT 1"]
    refused = subprocess.run(psql, user="nobody", cwd="/", capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "Permission denied" in refused.stderr
    # Even past the directory, the kernel's word on who they are counts.
    shared.sockets.chmod(0o755)
    (shared.sockets / ".s.PGSQL.5432").chmod(0o777)
    shared.sockets.parent.chmod(0o711)
    refused = subprocess.run(psql, user="nobody", cwd="/", capture_output=True, text=True, check=False)
    assert "Peer authentication failed" in refused.stderr


def test_data_survives_a_restart(postgres: Postgres) -> None:
    postgres.start()
    with psycopg.connect(postgres.url) as connection:
        connection.execute("CREATE TABLE fact (text text)")
        connection.execute("INSERT INTO fact VALUES ('kept')")
    postgres.stop()
    postgres.start()
    assert value(postgres.url, "SELECT text FROM fact") == "kept"


def test_a_server_left_behind_is_stopped_cleanly_first(postgres: Postgres) -> None:
    postgres.start()
    assert postgres.process is not None
    left = identify(postgres.process.pid)
    assert left is not None
    other = Postgres(postgres.directory, disposable=True)
    with other:
        postgres.process.wait()
        assert not left.is_alive()
        assert value(other.url, "SELECT 1") == 1
    assert "automatic recovery in progress" not in other.log.read_text()


def test_the_id_of_another_process_in_a_stale_file_is_no_obstacle(postgres: Postgres) -> None:
    postgres.start()
    postgres.stop()
    bystander = subprocess.Popen(["sleep", "60"], **postgres.account.popen_options())
    try:
        lines = [
            str(bystander.pid),
            str(postgres.data),
            "1",
            "5432",
            str(postgres.sockets),
            "",
            "1 1",
            "ready",
        ]
        (postgres.data / "postmaster.pid").write_text("\n".join(lines))
        postgres.start()
        assert value(postgres.url, "SELECT 1") == 1
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_killed_server_recovers_what_was_committed(short_dir: Path) -> None:
    server = Postgres(short_dir / "pg")
    try:
        server.start()
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE fact AS SELECT 42 AS number")
        assert server.process is not None
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server.process = None
        server.start()
        assert value(server.url, "SELECT number FROM fact") == 42
    finally:
        server.stop()
        server.destroy()


def test_an_interrupted_creation_leaves_nothing_half_made(postgres: Postgres) -> None:
    postgres.prepare()
    postgres.data.rename(postgres.home / "draft")  # as if the process had died before the last step
    postgres.start()
    assert value(postgres.url, "SELECT 1") == 1


def test_data_of_another_major_version_is_refused(postgres: Postgres) -> None:
    postgres.prepare()
    (postgres.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(CannotStart, match="was made by PostgreSQL 17"):
        postgres.start()


def test_a_server_that_cannot_start_shows_its_log(postgres: Postgres) -> None:
    postgres.prepare()
    (postgres.data / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(CannotStart, match="no_such_setting"):
        postgres.start()


def test_a_long_path_gets_a_short_socket_directory(short_dir: Path) -> None:
    deep = short_dir / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    for path in (short_dir, deep.parent, deep):
        path.chmod(0o711)
    server = Postgres(deep / "pg", disposable=True)
    try:
        with server:
            assert value(server.url, "SELECT 1") == 1
            assert stat.S_IMODE(server.sockets.stat().st_mode) == 0o700
    finally:
        server.sockets.rmdir()


def test_it_ends_when_the_process_that_started_it_is_killed(short_dir: Path) -> None:
    short_dir.chmod(0o711)
    script = (
        "import sys, time, pathlib\n"
        "from forebay.supervisor.postgres import Postgres\n"
        f"server = Postgres(pathlib.Path({str(short_dir)!r}) / 'pg').start()\n"
        "print(server.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    server = identify(int(starter.stdout.readline()))
    assert server is not None
    starter.kill()
    starter.wait()
    assert wait_until_gone([server], 20) == []
    assert "database system is shut down" in (short_dir / "pg.log").read_text()


@AS_ROOT
def test_somebody_elses_directory_is_refused(short_dir: Path) -> None:
    short_dir.chmod(0o711)
    (short_dir / "pg").mkdir(mode=0o700)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setuid(65534)
        try:
            Postgres(short_dir / "pg").start()
        except SupervisorError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000).decode() == f"{short_dir}/pg belongs to root: run as them or as root"
