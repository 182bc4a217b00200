"""A team whose alerts go to a real HTTP server on this machine, which the operator allows."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network

import pytest

from cluster.core.roles import Role
from telemetry.services.webhooks import create_webhook


@dataclass
class Receiver:
    """A server that answers as told and keeps what it got."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    got: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver():
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers = found.answers.pop(0) if found.answers else (204, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            found.got.append((self.path, {}, "GET"))
            self.send_error(404)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/hook?a=b"
    yield found
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def loopback_allowed(settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]


@pytest.fixture
def admin(db, demo):
    return demo.person("ada")


@pytest.fixture
def team(admin, demo):
    return demo.team_with(admin, Role.ADMIN)


@pytest.fixture
def made(team, admin, receiver, loopback_allowed):
    """A webhook for incidents and its secret."""
    kinds = ["verdict.opened", "verdict.cleared", "reconfiguration.proposed"]
    return create_webhook(team=team, user=admin, actor="ada", url=receiver.url, kinds=kinds)
