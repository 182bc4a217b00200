"""A real browser on the real ASGI application: uvicorn in a thread, Debian's Chromium through Playwright."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import uvicorn
from django.test import override_settings
from playwright.sync_api import Browser, BrowserContext, Page, expect

from cluster.core.roles import Role
from cluster.models import Team, User
from web.services.one_time import LOGIN, issue_secret

# Patience for a crowded machine; a page that is quick passes as quickly as before.
PATIENCE_MS = 40_000
expect.set_options(timeout=PATIENCE_MS)


class Site(uvicorn.Server):
    """The application on a loopback port."""

    def __init__(self, port: int) -> None:
        super().__init__(
            uvicorn.Config("web.asgi:application", host="127.0.0.1", port=port, log_level="error")
        )
        self.url = f"http://127.0.0.1:{port}"
        self.thread = threading.Thread(target=self.run, daemon=True)

    def install_signal_handlers(self) -> None:
        """Signals belong to pytest."""

    def start(self) -> None:
        self.thread.start()
        deadline = time.monotonic() + 30
        while not self.started and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.started

    def settle(self) -> None:
        """Wait until nothing asked for is still being answered: it would meet the next test's tables."""
        busy, deadline = self.server_state, time.monotonic() + 30
        while (busy.tasks or busy.connections) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not busy.tasks, f"still being answered: {busy.tasks}"

    def stop(self) -> None:
        self.should_exit = self.force_exit = True
        self.thread.join(10)


@pytest.fixture(scope="session")
def server(django_db_setup: None, valkey_server: str) -> Iterator[Site]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    site = Site(port)
    # Static files come from where they are written, without collecting them first.
    with override_settings(WHITENOISE_USE_FINDERS=True, WHITENOISE_AUTOREFRESH=True):
        site.start()
    yield site
    site.stop()


class Faults(list[str]):
    """What went wrong in a page: uncaught errors, refused scripts, failed requests."""

    def watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("console", lambda m: self.append(m.text) if m.type == "error" else None)
        page.on("response", lambda r: self.append(f"{r.status} {r.url}") if r.status >= 500 else None)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def ada(transactional_db: None, demo: ModuleType) -> User:
    """A person who administers the team demo."""
    user: User = demo.person("ada")
    demo.team_with(user, Role.ADMIN)
    return user


@pytest.fixture
def team(ada: User) -> Team:
    return Team.objects.get(slug="demo")


Opener = Callable[..., Page]


@pytest.fixture
def open_as(server: Site, browser: Browser, faults: Faults, transactional_db: None) -> Iterator[Opener]:
    """Open an address as a person, in a browser profile of its own."""
    contexts: list[BrowserContext] = []

    def opened(user: User | None, path: str = "/", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        faults.watch(page)
        if user is not None:
            page.goto(f"{server.url}/login/{issue_secret(purpose=LOGIN, user=user)}?next={path}")
        else:
            page.goto(server.url + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    server.settle()
