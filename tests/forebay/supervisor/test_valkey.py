"""A real Valkey: private, durable, never two on one file."""

import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from forebay.supervisor.process import identify
from forebay.supervisor.valkey import Valkey


@pytest.fixture
def valkey(short_dir: Path) -> Iterator[Valkey]:
    server = Valkey(short_dir / "valkey")
    yield server
    server.stop()


def client(server: Valkey) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(server.socket))


def test_only_its_owner_reaches_it_and_only_by_the_socket(valkey: Valkey) -> None:
    valkey.start()
    assert client(valkey).config_get("port") == {"port": "0"}
    assert stat.S_IMODE(valkey.sockets.stat().st_mode) == 0o700
    assert stat.S_IMODE(valkey.socket.stat().st_mode) == 0o700


def test_what_it_held_survives_a_restart(valkey: Valkey) -> None:
    valkey.start()
    client(valkey).rpush("queue", "message")
    valkey.stop()
    valkey.start()
    assert client(valkey).lrange("queue", 0, -1) == [b"message"]


def test_what_it_held_for_more_than_a_second_survives_a_kill(valkey: Valkey) -> None:
    valkey.start()
    client(valkey).rpush("queue", "message")
    deadline = time.monotonic() + 30
    # The append-only file is synced every second; a kill of the process alone loses not even that.
    while client(valkey).info("persistence")["aof_pending_bio_fsync"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert valkey.process is not None
    valkey.process.send_signal(signal.SIGKILL)
    valkey.process.wait()
    valkey.process = None
    valkey.start()
    assert client(valkey).lrange("queue", 0, -1) == [b"message"]


def test_a_server_left_behind_ends_before_another_opens_its_file(valkey: Valkey) -> None:
    valkey.start()
    client(valkey).set("key", "value")
    assert valkey.process is not None
    left = identify(valkey.process.pid)
    assert left is not None
    with Valkey(valkey.directory) as other:
        valkey.process.wait()
        assert not left.is_alive()
        assert client(other).get("key") == b"value"


def test_a_disposable_server_writes_no_file(short_dir: Path) -> None:
    with Valkey(short_dir / "valkey", disposable=True) as server:
        client(server).set("key", "value")
        assert not (server.directory / "appendonlydir").exists()


def test_the_address_is_one_that_celery_understands(valkey: Valkey) -> None:
    valkey.start()
    assert valkey.url == f"redis+socket://{valkey.socket}?virtual_host=0"
