"""`forebay bench reconfigure`: live changes of layout of a running job, their pauses and what they leave."""

import math
import statistics
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.bench import report

if TYPE_CHECKING:
    from workers.trainer.parallel.soak import Change, Soak


@click.command(name="reconfigure")
@click.option("--width", type=click.IntRange(min=8, max=4096), default=64, help="Width of the model [64].")
@report.options(rounds=100, quick_rounds=12)
def command(as_json: bool, quick: bool, rounds: int, width: int) -> None:
    """Four real ranks train pydoc-gpt while their layout changes, `rounds` times in a row.

    Layers, micro-batches, groups, stage order and replicas change in turn. The pause runs from the end of the
    last iteration to the start of the next; each phase is that of its slowest rank, and `drain`, the time to
    finish the iteration under way, is training and no pause. State is compared bit by bit in every change.
    """
    from workers.trainer.parallel.soak import PHASES, soak

    if width % 4:
        raise click.BadParameter("it must be a multiple of the 4 heads", param_hint="--width")
    found = soak(rounds, width, settle=1 if quick else 3)
    figures = {
        "pause_s": _spread([change.pause_s for change in found.changes]),
        "phases_s": {name: _spread([change.phases_s[name] for change in found.changes]) for name in PHASES},
        "moved_bytes": _spread([float(change.sent_bytes) for change in found.changes]),
        "left_behind": _left_behind(found),
        "samples_exact": found.samples_exact,
    }
    report.show("reconfigure", rounds, quick, as_json, figures, _lines(figures, found.changes))


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "max": ordered[-1],
    }


def _left_behind(found: "Soak") -> dict[str, int]:
    """How much more each rank holds after the changes than before, summed over the ranks."""

    def more(name: str) -> int:
        rows = ((row, found.after[rank]) for rank, row in found.before.items())
        return sum(getattr(after, name) - getattr(before, name) for before, after in rows)

    return {
        "processes": found.processes_left,
        "sockets": more("sockets"),
        "files": more("files"),
        "threads": more("threads"),
        "memory_bytes": more("memory_bytes"),
    }


def _lines(figures: dict[str, Any], changes: "list[Change]") -> list[str]:
    rows = [("pause", *figures["pause_s"].values())]
    rows += [(f"  {name}", *spread.values()) for name, spread in figures["phases_s"].items()]
    lines = report.table(("seconds", "median", "95 %", "longest"), rows)
    left = ", ".join(f"{count:+,} {name.replace('_', ' ')}" for name, count in figures["left_behind"].items())
    return [
        *lines,
        "",
        f"left behind after {len(changes)} changes: {left}",
        f"every sample used exactly once: {'yes' if figures['samples_exact'] else 'NO'}",
    ]
