"""What every bench shares: its options, the machine it ran on, interleaved rounds and one way to print.

A bench is a click command called `command` in a module of this folder:

    @click.command(name="fusion")
    @report.options(rounds=7, quick_rounds=3)
    def command(as_json: bool, quick: bool, rounds: int) -> None:
        times = report.interleaved({"ours": run_ours, "theirs": run_theirs}, rounds)
        report.show("fusion", rounds, quick, as_json, {"results": [...]}, lines)
"""

import functools
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from forebay.cli.output import emit_json, say


def options(*, rounds: int, quick_rounds: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that every bench has; the bench gets ``as_json``, ``quick`` and ``rounds``."""

    def decorate(bench: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
        @click.option(
            "--quick", is_flag=True, help="Fewer and smaller rounds: within five minutes on two cores."
        )
        @click.option(
            "--rounds",
            "asked",
            type=click.IntRange(min=1),
            help=f"Rounds to take medians over [{rounds}, quick {quick_rounds}].",
        )
        @functools.wraps(bench)
        def run(*args: Any, as_json: bool, quick: bool, asked: int | None, **kwargs: Any) -> Any:
            count = asked or (quick_rounds if quick else rounds)
            return bench(*args, as_json=as_json, quick=quick, rounds=count, **kwargs)

        return run

    return decorate


def machine() -> dict[str, Any]:
    """The machine that the figures belong to."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "load_average_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: found for name in ("torch", "ray", "optuna") if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


@dataclass(frozen=True)
class Times:
    """Seconds of one case, one entry per round."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds)

    def as_dict(self) -> dict[str, Any]:
        return {"median_s": self.median_s, "min_s": min(self.seconds), "max_s": max(self.seconds)}


def interleaved(
    cases: Mapping[str, Callable[[], float | None]], rounds: int, *, warm_up: bool = True
) -> dict[str, Times]:
    """Run every case once per round, each round beginning with another case, after one unmeasured round.

    A case returns its own seconds, or None to be timed from outside.
    """
    names = list(cases)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1 if warm_up else 0, rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            seconds = _timed(cases[name])
            if number >= 0:
                found[name].append(seconds)
    return {name: Times(tuple(values)) for name, values in found.items()}


def _timed(case: Callable[[], float | None]) -> float:
    begin = time.perf_counter()
    own = case()
    return time.perf_counter() - begin if own is None else own


def show(
    name: str, rounds: int, quick: bool, as_json: bool, figures: Mapping[str, Any], lines: Iterable[str]
) -> None:
    """Print the figures as one JSON document, or as lines for people; the machine comes with both."""
    described = machine()
    if as_json:
        emit_json({"bench": name, "rounds": rounds, "quick": quick, "machine": described, **figures})
        return
    for line in lines:
        click.echo(line)
    say(f"{described['cpu']}, {described['usable_cores']} cores, medians of {rounds} interleaved rounds")


def table(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Rows as aligned text, numbers with three significant digits."""
    texts = [header, *(tuple(_text(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    ]


def _text(cell: Any) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)
