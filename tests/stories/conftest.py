"""The platform as its users have it: `forebay up` in a directory of its own, a real browser, a real shell."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.runtime import Runtime, read_runtime

# Patience for a crowded machine; a page that is quick passes as quickly as before.
expect.set_options(timeout=60_000)
ENDED = ("completed", "failed", "cancelled")
EMBEDDED = {"DATABASE_URL", "BROKER_URL", "RAY_ADDRESS", "FOREBAY_STATIC", "FOREBAY_DEBUG", "FOREBAY_DATA"}


class Platform:
    """A running platform and the ways people reach it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        environment = {k: v for k, v in os.environ.items() if k not in EMBEDDED and "PYTEST" not in k}
        self.environment = environment | {"FOREBAY_DATA": str(data), "OMP_NUM_THREADS": "1"}

    @property
    def runtime(self) -> Runtime:
        runtime = read_runtime(self.data / "runtime.json")
        assert runtime is not None
        return runtime

    @property
    def url(self) -> str:
        return self.runtime.url

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def run(
        self, *arguments: str, seconds: float = 240, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Type a `forebay` command."""
        return subprocess.run(
            [sys.executable, "-m", "forebay.cli.main", *arguments],
            capture_output=True,
            text=True,
            env=self.environment | environment,
            check=False,
            timeout=seconds,
        )

    def login_link(self) -> str:
        """Return a fresh one-time link, as a second `forebay up` prints it."""
        printed = self.run("up", "--detach", "--data-dir", str(self.data))
        found = re.search(r"http://\S+/login/\S+", printed.stdout + printed.stderr)
        assert found is not None, printed
        return found.group()

    def api(self, method: str, path: str, **options: object) -> httpx.Response:
        """Call the API with the local token, patiently while a part is coming back."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}  # type: ignore[dict-item]
        url = path if path.startswith("http") else f"{self.url}/api/v1/{path}"
        return httpx.request(method, url, headers=headers, timeout=30, **options)  # type: ignore[arg-type]

    def submit(self, **spec: object) -> str:
        """Submit a study and return its id."""
        body = {"kind": "study", "spec": {"workload": "digits-mlp", **spec}}
        answer = self.api("POST", "jobs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict:
        """Return a job's answer, or nothing while the server does not answer."""
        try:
            answer = self.api("GET", f"jobs/{job_id}")
        except httpx.TransportError:
            return {}
        return answer.json() if answer.status_code == 200 else {}

    def items(self, path: str) -> list[dict]:
        """Return every item of a list."""
        found: list[dict] = []
        following: str | None = f"{self.url}/api/v1/{path}"
        while following:
            page = self.api("GET", following).json()
            found += page["items"]
            following = page["next"]
        return found

    @staticmethod
    def eventually(condition: Callable[[], object], seconds: float = 60) -> bool:
        """Whether a condition comes true in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.2)
        return False

    def wait(self, job_id: str, *states: str, seconds: float = 240) -> dict:
        """Wait until a job is in one of the states."""
        assert self.eventually(lambda: self.job(job_id).get("state") in states, seconds), self.job(job_id)
        return self.job(job_id)


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    """A platform for all stories; each brings its own jobs."""
    data = Path(tempfile.mkdtemp(prefix="fb-", dir="/tmp"))
    running = Platform(data)
    started = running.run("up", "--detach", "--no-demo", "--data-dir", str(data))
    assert started.returncode == 0, started.stderr
    workloads = lambda: len(running.items("workloads")) >= 4  # noqa: E731
    assert running.eventually(workloads), (data / "logs" / "forebay.log").read_text()[-3000:]
    yield running
    running.run("down", "--data-dir", str(data))
    DataDirectory(data).delete_contents()


@pytest.fixture(autouse=True)
def nothing_left_behind(platform: Platform) -> Iterator[None]:
    """A story that stopped half-way must not keep the devices from the next one."""
    yield
    for job in platform.items("jobs"):
        if job["state"] not in ENDED:
            platform.api("POST", f"jobs/{job['id']}/cancel")
            platform.wait(job["id"], *ENDED)


@pytest.fixture
def page(browser: Browser, platform: Platform) -> Iterator[Page]:
    """A signed-in browser window."""
    context = browser.new_context(viewport={"width": 1380, "height": 900}, accept_downloads=True)
    context.set_default_timeout(60_000)
    window = context.new_page()
    window.goto(platform.login_link())
    yield window
    context.close()
