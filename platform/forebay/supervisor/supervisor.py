"""The supervisor: starts the platform in order, watches it, and stops it in the opposite order."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from forebay.supervisor.addresses import HOST, listen
from forebay.supervisor.child import Child, ChildState, stop_together
from forebay.supervisor.credentials import ensure_secret
from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.environment import Given, part_environment
from forebay.supervisor.errors import CannotStart, StopRequested
from forebay.supervisor.logs import JoinedLog
from forebay.supervisor.part import Part
from forebay.supervisor.parts import (
    broker_part,
    database_part,
    once_part,
    source_directory,
    web_part,
    worker_parts,
)
from forebay.supervisor.postgres import Postgres
from forebay.supervisor.process import tail
from forebay.supervisor.runtime import READY, STARTING, STOPPING, Runtime, forget, own_identity, read_runtime
from forebay.supervisor.steps import Step, Steps
from forebay.supervisor.stopping import stop_leftovers
from forebay.supervisor.valkey import Valkey

START_SECONDS = 90.0
ATTEMPTS_AT_START = 4
# Collecting static files needs neither, but the settings want addresses.
UNUSED_DATABASE, UNUSED_BROKER = "postgresql:///unused", "redis+socket:///unused"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Options:
    """What the user asked of `forebay up`."""

    port: int | None = None
    public_url: str | None = None
    demo: bool = True
    reset: bool = False
    verbose: bool = False

    def arguments(self) -> list[str]:
        """The same wish as arguments of the command line."""
        given = [f"--port={self.port}"] if self.port else []
        given += [f"--public-url={self.public_url}"] if self.public_url else []
        given += [] if self.demo else ["--no-demo"]
        return given + (["--reset", "--yes"] if self.reset else []) + (["--verbose"] if self.verbose else [])


class Supervisor:
    """Runs the platform in one data directory, whose lock the caller holds."""

    def __init__(self, data: DataDirectory, given: Given, options: Options, log: JoinedLog) -> None:
        self.data = data
        self.given = given
        self.options = options
        self.log = log
        self.children: list[Child] = []  # in starting order
        self.later: list[Part] = []  # commands that run one after the other once the platform answers
        self.runtime = Runtime(own_identity(), STARTING, "", 0, str(data.path))
        self._stop_asked = False
        self._steps_taken: list[Steps] = []

    def run(self, on_ready: Callable[[Runtime], None]) -> None:
        """Start everything, report, and stay until a signal asks to stop."""
        with self._signals() as wake:
            try:
                self.start()
                on_ready(self.runtime)
                self.watch(wake)
            except StopRequested:
                self.log.say("asked to stop while starting")
            finally:
                self.stop()

    def start(self) -> None:
        """Bring the platform to the point where it answers."""
        began = time.monotonic()
        stop_leftovers(read_runtime(self.data.runtime), self.log.say)
        ensure_secret(self.data.secret_key)
        ensure_secret(self.data.ray_token)
        self.listener = listen(self.options.port, self.data.state / "port")
        self.runtime.port = self.listener.getsockname()[1]
        self.runtime.public_url = self.options.public_url or ""
        self.runtime.url = f"http://{HOST}:{self.runtime.port}"
        self._record()
        static = self._steps(UNUSED_DATABASE, UNUSED_BROKER).collect_static_files()
        self._start_servers()
        self._start_platform(static)
        self.runtime.state = READY
        self._record()
        self.log.say(f"ready after {time.monotonic() - began:.1f} s")

    def _start_servers(self) -> None:
        """Valkey and PostgreSQL side by side, unless the operator brought their own."""
        self.runtime.database_url, self.runtime.broker_url = self.given.database_url, self.given.broker_url
        if not self.given.broker_url:
            valkey = Valkey(self.data.valkey)
            valkey.prepare()
            self.runtime.broker_url = valkey.url
            self._launch(broker_part(valkey))
        if not self.given.database_url:
            postgres = Postgres(self.data.postgres)
            postgres.prepare()
            self.runtime.database_url = postgres.url
            self._launch(database_part(postgres))
        self._await_ready()

    def _steps(self, database_url: str, broker_url: str) -> Steps:
        environment = part_environment(
            self.data,
            port=self.runtime.port,
            database_url=database_url,
            broker_url=broker_url,
            public_url=self.options.public_url,
        )
        steps = Steps(self.data, source_directory(self.data), environment, self.log)
        self._steps_taken.append(steps)
        return steps

    def _start_platform(self, static: Step | None) -> None:
        steps = self._steps(self.runtime.database_url, self.runtime.broker_url)
        directory, environment = steps.directory, steps.environment
        for step in (static, steps.migrate(is_embedded=not self.given.database_url)):
            if step is not None:
                step.finish(self._is_stopping)
        self._launch(web_part(directory, environment, self.listener))
        path = steps.command("login_link").answer(self._is_stopping)
        steps.ensure_token(self._is_stopping)  # after the link, whose command creates the first user
        self.runtime.login_url = path if "://" in path else self.runtime.site + path
        self._await_ready()
        for part in worker_parts(self.data, directory, environment):
            self._launch(part)
        self.later = [once_part("workloads", "sync_workloads", directory, environment)]
        if self.options.demo:
            self.later.append(once_part("demo", "load_demo", directory, environment))

    def _launch(self, part: Part) -> Child:
        child = Child(part, self.log.file_of(part.name))
        child.start(time.monotonic())
        self.children.append(child)
        self._record()
        return child

    def _await_ready(self) -> None:
        """Wait for everything started so far; an early death is tried again a few times."""
        deadline = time.monotonic() + START_SECONDS
        while unready := [child for child in self.children if child.state != ChildState.READY]:
            if self._stop_asked:
                raise StopRequested
            self._tick()
            for child in unready:
                if child.failures >= ATTEMPTS_AT_START or time.monotonic() > deadline:
                    raise CannotStart(child.part.name, tail(child.log) or f"nothing in {child.log}")
            time.sleep(0.02)

    def watch(self, wake: int) -> None:
        """Restart what dies, until asked to stop."""
        while not self._stop_asked:
            if not self.later_is_running() and self.later:
                self._launch(self.later.pop(0))
            self._tick()
            if not self.data.lock.exists():
                self.log.say(f"{self.data.path} was deleted; stopping")
                return
            if select.select([wake], [], [], 0.5)[0]:
                os.read(wake, 512)

    def later_is_running(self) -> bool:
        """Whether one of the commands that run one after the other is under way."""
        over = {ChildState.DONE, ChildState.FAILED}
        return any(child.part.once and child.state not in over for child in self.children)

    def _tick(self) -> None:
        before = [(child.identity, child.state) for child in self.children]
        for child in self.children:
            if news := child.tick(time.monotonic()):
                self.log.say(f"{child.part.name} {news}")
        self.log.follow()
        if before != [(child.identity, child.state) for child in self.children]:
            self._record()

    def stop(self) -> None:
        """Stop in the opposite order of the start: clock, workers, web, then what they all need."""
        began = time.monotonic()
        self.runtime.state = STOPPING
        self._record()
        for steps in self._steps_taken:
            steps.abandon()
        servers = [child for child in self.children if child.part.name in {"postgres", "valkey"}]
        web = [child for child in self.children if child.part.name == "web"]
        rest = [child for child in self.children if child not in servers and child not in web]
        for group in (rest, web, servers):
            stop_together(group)
        forget(self.data.runtime)
        self.log.say(f"stopped after {time.monotonic() - began:.1f} s")

    def _record(self) -> None:
        self.runtime.parts = {child.part.name: child.identity for child in self.children if child.identity}
        self.runtime.restarts = {child.part.name: child.restarts for child in self.children}
        with contextlib.suppress(FileNotFoundError):  # the data directory was deleted under us
            self.runtime.write(self.data.runtime)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Handle the signals that stop us; yields a descriptor that becomes readable with any signal."""
        wake, raised = os.pipe()
        for end in (wake, raised):
            os.set_blocking(end, False)
        before = {number: signal.signal(number, self._asked_to_stop) for number in STOP_SIGNALS}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(raised, warn_on_full_buffer=False)
        try:
            yield wake
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake)
            os.close(raised)

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        # Only noted, and looked at where nothing is half-done: a child just being started would be lost.
        self._stop_asked = True

    def _is_stopping(self) -> bool:
        return self._stop_asked
