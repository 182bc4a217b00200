"""What every test can use."""

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import kombu.pools
import pytest
from django.db import connection
from playwright.sync_api import Browser, sync_playwright

from web.celery import app

ROOT = Path(__file__).resolve().parent.parent
MESSAGE_CHARACTERS = 600
CHROMIUM = os.environ.get("FOREBAY_CHROMIUM", "/usr/bin/chromium")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with one short line for each failure: messages of page tests are screens long."""
    for report in (row for kind in ("failed", "error") for row in terminalreporter.stats.get(kind, [])):
        crash = getattr(report.longrepr, "reprcrash", None)
        message = " ".join(str(crash.message if crash else report.longrepr).split())[:MESSAGE_CHARACTERS]
        line = crash.lineno if crash else "?"
        terminalreporter.write_line(f"FAILED {report.nodeid} line {line}: {message}")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("reference data (../shared) is not on this machine")
    return folder


@pytest.fixture(scope="session")
def demo() -> ModuleType:
    """The factory of demo jobs, `tests/demo`; its models can be imported only once Django is set up."""
    return importlib.import_module("tests.demo")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium per file: Playwright's loop must be gone before other files run asynchronous tests."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}: apt-get install chromium, or set FOREBAY_CHROMIUM")
    # Playwright keeps a loop running in this thread, which Django takes for asynchronous code.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    postgres_server: str, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Have the server run before pytest-django creates its database."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker) -> Iterator[None]:
    """Let tests that commit be cleaned up, which truncates every table; end what threads left open."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER audit_log_is_kept ON journal_auditentry")
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture
def broker_at() -> Iterator[Callable[[str], None]]:
    """Point this process's Celery app at another broker until the test ends."""
    before = app.conf.broker_url

    def point(url: str) -> None:
        app.conf.broker_url = url
        app.close()
        kombu.pools.reset()
        app.amqp._producer_pool = None

    yield point
    point(before)
