"""`forebay bench platform`: the web platform's start, memory, requests, events and live streams."""

import signal
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.bench import report
from forebay.cli.errors import BadInput, CommandError, Exit
from forebay.cli.output import say

if TYPE_CHECKING:
    from forebay.cli.bench.platform_house import House

MB = 1_000_000
NAMES = ("start", "memory", "submissions", "pages", "events", "sockets", "incidents", "study")


@dataclass(frozen=True)
class Size:
    """How much of everything is measured."""

    starts: int
    submissions: int
    trials: int
    pages: int
    batched_events: int
    single_events: int
    crowd: int
    crowd_seconds: int
    incidents: int
    study_trials: int
    study_epochs: int


FULL = Size(3, 500, 50_000, 30, 10_000, 1000, 500, 30, 30, 12, 20)
QUICK = Size(1, 100, 50_000, 10, 3000, 200, 500, 8, 10, 4, 20)


@dataclass(frozen=True)
class Figure:
    """One measured figure and its goal; with `at_least` more is better."""

    name: str
    value: float | None
    unit: str
    goal: float | None = None
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        if self.goal is None or self.value is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def row(self) -> tuple[str, str, str, str]:
        """The figure as a line of the table."""
        sign = ">=" if self.at_least else "<="
        goal = "-" if self.goal is None else f"{sign} {self.goal:g} {self.unit}".rstrip()
        value = "-" if self.value is None else f"{self.value:.4g} {self.unit}".rstrip()
        return self.name, value, goal, {True: "met", False: "MISSED", None: ""}[self.is_met]


@click.command(name="platform")
@click.option("--clients", type=click.IntRange(1, 5000), help="WebSocket clients; the loss test has twice.")
@click.option("--trials", type=click.IntRange(1, 1_000_000), help="Trials of the large study [50000].")
@click.option("--seconds", type=click.IntRange(1, 600), help="How long the clients listen [30, quick 8].")
@click.option("--only", metavar="PARTS", help=f"Only these, separated by commas: {', '.join(NAMES)}.")
@report.options(rounds=FULL.starts, quick_rounds=QUICK.starts)
def command(
    clients: int | None, trials: int | None, seconds: int | None, only: str | None,
    as_json: bool, quick: bool, rounds: int,
) -> None:  # fmt: skip
    """Measure the whole platform: its start, memory, requests, events, live streams and studies.

    A platform of its own is started in a temporary directory with PostgreSQL, Valkey, web and workers, and
    is stopped and deleted at the end, also on Ctrl-C. The clients that put it under load run on the same
    machine. Rounds are starts; everything else is measured on the last one.
    """
    asked = {"starts": rounds, "crowd": clients, "trials": trials, "crowd_seconds": seconds}
    size, wanted = _sized(QUICK if quick else FULL, asked), _wanted(only)
    details: dict[str, Any] = {}
    figures: list[Figure] = []
    with _interruptible(), _house() as house:
        if "start" not in wanted:
            house.start()
        for name in [name for name in NAMES if name in wanted]:
            say(f"{name} ...")
            found, details[name] = PARTS[name](house, size)
            figures += found
    rows = [{**asdict(figure), "is_met": figure.is_met} for figure in figures]
    lines = report.table(("figure", "measured", "goal", ""), [figure.row() for figure in figures])
    report.show("platform", rounds, quick, as_json, {"figures": rows, "details": details}, lines)


def _wanted(only: str | None) -> set[str]:
    names = set(only.split(",")) if only is not None else set(NAMES)
    if unknown := names - set(NAMES):
        raise BadInput(f"--only: '{min(unknown)}' is no part; there are {', '.join(NAMES)}")
    return names


def _sized(size: Size, asked: dict[str, int | None]) -> Size:
    return Size(**(asdict(size) | {name: value for name, value in asked.items() if value is not None}))


@contextmanager
def _house() -> "Iterator[House]":
    import httpx

    from forebay.cli.bench.platform_house import House, own_environment
    from forebay.supervisor.errors import SupervisorError

    with own_environment(), House() as house:
        try:
            yield house
        except (SupervisorError, httpx.HTTPError) as error:
            raise CommandError(str(error), Exit.FAILED) from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have SIGTERM do what Ctrl-C does, and both work where a shell in the background has Ctrl-C ignored."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: lambda *_: signal.raise_signal(signal.SIGINT),
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Found = tuple[list[Figure], dict[str, Any]]


def start(house: "House", size: Size) -> Found:
    """Start on a fresh data directory, then on the same again, from the process to /readyz."""
    cold, warm = [], []
    for number in range(size.starts):
        cold.append(house.start())
        house.settle()
        house.stop()
        warm.append(house.start())
        if number < size.starts - 1:
            house.stop()
            house.clear()
    figures = [
        Figure("start to /readyz, fresh data directory", _median_of(cold, 0), "s", 15),
        Figure("start to /readyz, again", _median_of(warm, 0), "s", 6),
        Figure("start to login link, fresh data directory", _median_of(cold, 1), "s"),
        Figure("start to login link, again", _median_of(warm, 1), "s"),
    ]
    return figures, {"cold_s": cold, "warm_s": warm}


def _median_of(rows: list[tuple[float, float]], column: int) -> float:
    return statistics.median(row[column] for row in rows)


def memory(house: "House", size: Size) -> Found:
    """Memory of every process of the idle platform, before Ray is first needed."""
    from forebay.cli.bench.platform_house import has_proc, memory_bytes

    if not has_proc():
        return [], {"left_out": "this system does not tell the memory of processes as Linux does"}
    house.settle()
    parts: dict[str, dict[str, float]] = {}
    for pid, name in house.processes().items():
        rss, pss = memory_bytes(pid)
        row = parts.setdefault(name, {"processes": 0, "rss_mb": 0.0, "pss_mb": 0.0})
        row["processes"] += 1
        row["rss_mb"] += rss / MB
        row["pss_mb"] += pss / MB
    figures = [
        Figure("idle memory without Ray, sum of RSS", sum(p["rss_mb"] for p in parts.values()), "MB", 700),
        Figure("idle memory without Ray, sum of PSS", sum(p["pss_mb"] for p in parts.values()), "MB"),
    ]
    return figures, parts


def submissions(house: "House", size: Size) -> Found:
    """From a submission to its 202."""
    from forebay.cli.bench.platform_requests import submit

    found = submit(house, size.submissions)
    house.settle()
    figures = [
        Figure("submit a study, median", 1000 * found["median_s"], "ms"),
        Figure("submit a study, p99", 1000 * found["p99_s"], "ms", 300),
    ]
    return figures, found


def pages(house: "House", size: Size) -> Found:
    """The first page of a study with very many trials."""
    from forebay.cli.bench.platform_requests import first_page

    found = first_page(house, size.trials, size.pages)
    figures = [
        Figure(
            f"first page of {size.trials} trials, {case}, in the server", 1000 * one["median_s"], "ms", 150
        )
        for case, one in found.items()
    ]
    return figures, found


def events(house: "House", size: Size) -> Found:
    """Events into a stream that nobody follows, by one writer."""
    stream = "job:00000000-0000-0000-0000-000000000000"
    house.settle()
    batched = house.manage("bench_events", stream, f"--events={size.batched_events}", "--batch=100")
    single = house.manage("bench_events", stream, f"--events={size.single_events}")
    figures = [
        Figure("events in batches of 100", batched["per_second"], "/s", 1000, at_least=True),
        Figure("events committed one by one", single["per_second"], "/s", 200, at_least=True),
    ]
    return figures, {"batched": batched, "single": single}


def sockets(house: "House", size: Size) -> Found:
    """Everybody receives every event of one stream: in time, and all of them."""
    from forebay.cli.bench.platform_requests import tokens_for
    from forebay.cli.bench.platform_sockets import follow, run_fast

    tokens, count = tokens_for(house, min(100, size.crowd)), 5 * size.crowd_seconds
    found = {}
    for clients in (size.crowd, 2 * size.crowd):
        house.settle()
        found[clients] = run_fast(follow(house, tokens, clients=clients, rate=5, events=count))
    timed, doubled = found[size.crowd], found[2 * size.crowd]
    lost = {n: one["missing"] + one["doubled"] + one["disconnected"] for n, one in found.items()}
    figures = [
        Figure(f"{size.crowd} WebSocket clients at 5/s, median", _ms(timed["median_s"]), "ms"),
        Figure(f"{size.crowd} WebSocket clients at 5/s, p99", _ms(timed["p99_s"]), "ms", 250),
        Figure(f"{size.crowd} WebSocket clients at 5/s, lost or doubled", lost[size.crowd], "", 0),
        Figure(f"{2 * size.crowd} WebSocket clients at 5/s, lost or doubled", lost[2 * size.crowd], "", 0),
        Figure(f"{2 * size.crowd} WebSocket clients at 5/s, p99", _ms(doubled["p99_s"]), "ms"),
    ]
    return figures, {str(clients): one for clients, one in found.items()}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def incidents(house: "House", size: Size) -> Found:
    """A device is cordoned by API; until a browser on the fleet's stream has the event."""
    from forebay.cli.bench.platform_requests import incident, tokens_for
    from forebay.cli.bench.platform_sockets import run_fast

    house.settle()
    found = run_fast(incident(house, tokens_for(house, 1)[0], size.incidents))
    figures = [
        Figure("incident to browser, median", found["median_s"], "s"),
        Figure("incident to browser, p99", found["p99_s"], "s", 1),
    ]
    return figures, found


def study(house: "House", size: Size) -> Found:
    """What driving a study adds to its training."""
    from forebay.cli.bench.platform_house import has_proc
    from forebay.cli.bench.platform_study import driver_overhead

    if not has_proc():
        return [], {"left_out": "this system does not tell the processor time of processes as Linux does"}
    found = driver_overhead(house, size.study_trials, size.study_epochs)
    figures = [
        Figure("driver's processor time over training time", 100 * found["driver_cpu_share"], "%", 5),
        Figure("devices empty between trials over busy", 100 * found["gap_share"], "%"),
    ]
    return figures, found


PARTS: dict[str, Callable[["House", Size], Found]] = dict(
    zip(NAMES, (start, memory, submissions, pages, events, sockets, incidents, study), strict=True)
)
