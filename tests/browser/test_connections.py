"""What a server that runs for weeks must not keep: a database connection of every reader who went away."""

import socket
import time
from urllib.parse import urlsplit

from django.db import connection

from web.services.one_time import LOGIN, issue_secret

ABORTED = 12


def open_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query NOT LIKE 'LISTEN%'"
        )
        return int(cursor.fetchone()[0])


def ask(server, cookie: str, path: str) -> socket.socket:
    """Send a request and do not wait for the answer."""
    target = urlsplit(server.url)
    wire = socket.create_connection((target.hostname, target.port))
    wire.sendall(f"GET {path} HTTP/1.1\r\nHost: {target.netloc}\r\nCookie: {cookie}\r\n\r\n".encode())
    return wire


def session_of(server, user) -> str:
    """Sign in by a one-time link and return the cookie."""
    with ask(server, "", f"/login/{issue_secret(purpose=LOGIN, user=user)}") as wire:
        answer = wire.recv(65536)
    (cookie,) = [line for line in answer.split(b"\r\n") if line.lower().startswith(b"set-cookie: sessionid")]
    return cookie.split(b" ", 1)[1].split(b";")[0].decode()


def test_readers_who_leave_before_the_answer_leave_no_connection_behind(server, ada, team, demo):
    job = demo.study(ada, team, trials=40)
    cookie = session_of(server, ada)
    before = open_connections()
    for number in range(ABORTED):
        with ask(server, cookie, f"/studies/{job.pk}"):
            time.sleep(number % 4 * 0.03)
    deadline = time.monotonic() + 60
    while open_connections() > before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert open_connections() <= before
