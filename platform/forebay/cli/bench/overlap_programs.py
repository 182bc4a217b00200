"""What `forebay bench overlap` does with programs: simulated gains, and the simulator against real runs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# TP, SP and EP in training; the article's cross-node profile and one node.
TRAINED = ("tp-transformer", "tp-sp-transformer", "ulysses-transformer", "moe-transformer")
SERVED = tuple(
    f"{name}-inference"
    for name in ("tp-transformer", "tp-sp-transformer", "ulysses-transformer", "moe-transformer")
)
CLUSTERS = ("a100x8-hdr", "a100x8")
SLOWDOWN = 0.2
"""Compute and collectives each 1.2 times as slow while they overlap, which Concerto measured on A800."""

LINK = {"alpha_s": 0.002, "bytes_per_s": 1e8}
MEASURED_SIZE = {"batch": 8, "tokens": 128, "width": 256, "hidden": 1024, "heads": 4, "layers": 2}
MEASURED = (
    ("tp-transformer-inference", 2), ("tp-transformer-inference", 4), ("tp-transformer", 2),
    ("ulysses-transformer-inference", 2),
)  # fmt: skip
ORDERS = ("serial", "round-robin", "bucketed")
RANDOM_ORDERS = 3
QUIET_LOAD = 0.05
"""Above this share of the processors in other hands, measured times say little about the simulator."""


@dataclass(frozen=True)
class Tiled:
    """A built-in program in tiles: as it was captured, in its tiles, and as a graph without times."""

    groups: Any
    captured: Any
    made: Any
    work: Any


@dataclass
class Captures:
    """Built-in programs for the ranks of a cluster; each is captured once."""

    captured: dict[tuple[str, str], tuple[Any, Any]] = field(default_factory=dict)
    found: dict[tuple[str, str, int], Tiled] = field(default_factory=dict)

    def tiled(self, name: str, cluster: str, tiles: int) -> Tiled:
        """A program in a number of tiles."""
        from jobs.core.overlap.assembly import assemble
        from jobs.core.overlap.clusters import read_cluster
        from jobs.core.overlap.tiling import tile
        from workers.trainer.overlap.capture import capture_program
        from workers.trainer.overlap.loading import load_program

        if (name, cluster) not in self.captured:
            program = load_program(name, read_cluster(cluster))
            self.captured[name, cluster] = program.groups, capture_program(program)
        groups, captured = self.captured[name, cluster]
        if (name, cluster, tiles) not in self.found:
            made = tile(captured.program, captured.batch_dims, tiles)
            work = assemble(made.program, made.sizes, captured.ranks_of)
            self.found[name, cluster, tiles] = Tiled(groups, captured, made, work)
        return self.found[name, cluster, tiles]


def simulated_gains(
    captures: Captures, names: Sequence[str] = TRAINED, policy: str = "round-robin"
) -> list[dict[str, Any]]:
    """Two tiles against the program in one piece: bubbles and step time."""
    from jobs.core.overlap import make_plan, plan_document
    from jobs.core.overlap.clusters import read_cluster

    rows = []
    for name in names:
        for cluster in CLUSTERS:
            profile = read_cluster(cluster).cluster
            for slowdown in (0.0, SLOWDOWN):
                slow = {"compute_slowdown": slowdown, "comm_slowdown": slowdown}
                graphs = {n: captures.tiled(name, cluster, n).work.on(profile, **slow) for n in (1, 2)}
                before = plan_document(make_plan(graphs[1], "serial"))
                after = plan_document(make_plan(graphs[2], policy))
                rows.append(
                    {
                        "program": name,
                        "cluster": cluster,
                        "slowdown": slowdown,
                        "untiled_s": before["makespan"],
                        "plan_s": after["makespan"],
                        "gain": before["makespan"] / after["makespan"] - 1,
                        "bubble_reduction": 1 - after["compute_idle"] / before["compute_idle"],
                        "over_bound": after["makespan"] / after["lower_bound"] - 1,
                    }
                )
    return rows


def simulated_memory(captures: Captures) -> list[dict[str, Any]]:
    """Peak of activations in inference, two tiles in round robin against one piece."""
    from jobs.core.overlap import make_plan
    from jobs.core.overlap.clusters import read_cluster

    rows, profile = [], read_cluster(CLUSTERS[0]).cluster
    for name in SERVED:
        graphs = [captures.tiled(name, CLUSTERS[0], n).work.on(profile) for n in (1, 2)]
        before = make_plan(graphs[0], "serial").chosen.peak_bytes
        after = make_plan(graphs[1], "round-robin").chosen.peak_bytes
        row = {"program": name, "untiled_bytes": before, "plan_bytes": after}
        rows.append({**row, "saved": 1 - after / before})
    return rows


def measured_runs(rounds: int) -> list[dict[str, Any]]:
    """The simulator against two gloo processes over an emulated link, one row for each order.

    A round takes as long as its slower rank.
    """
    from workers.trainer.overlap.peers import run_peers

    rows = []
    for name, tiles in MEASURED:
        request = {"mode": "measure", "program": name, "tiles": tiles, "size": MEASURED_SIZE, **LINK}
        ranks = run_peers({**request, "policies": ORDERS, "random": RANDOM_ORDERS, "rounds": rounds})
        for both in zip(*(rank["rows"] for rank in ranks), strict=True):
            times = [max(pair) for pair in zip(*(row["times_s"] for row in both), strict=True)]
            one, measured_s = both[0], statistics.median(times)
            rows.append(
                {
                    "program": name,
                    "tiles": tiles,
                    "order": one["order"],
                    "estimated_s": one["estimated_s"],
                    "median_s": measured_s,
                    "spread": max(times) / min(times) - 1,
                    "time_error": one["estimated_s"] / measured_s - 1,
                    "peak_error": one["estimated_peak_bytes"] / one["measured_peak_bytes"] - 1,
                    "other_load": ranks[0]["other_load"],
                }
            )
    return rows


def agreement(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How far the estimates are off, and whether they rank the schedules as the runs do.

    The correlation is over all schedules, and the mean of those over the orders of one program.
    """
    by_program: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        by_program.setdefault((row["program"], row["tiles"]), []).append(row)
    loads = [row["other_load"] for row in rows if row["other_load"] is not None]
    return [
        {
            "schedules": len(rows),
            "time_error_mean": statistics.fmean(abs(row["time_error"]) for row in rows),
            "time_error_max": max(abs(row["time_error"]) for row in rows),
            "peak_error_max": max(abs(row["peak_error"]) for row in rows),
            "rank_correlation": _correlated(rows),
            "rank_correlation_within": statistics.fmean(_correlated(own) for own in by_program.values()),
            "other_load": max(loads, default=None),
            "quiet": max(loads) <= QUIET_LOAD if loads else None,
        }
    ]


def _correlated(rows: list[dict[str, Any]]) -> float:
    return rank_correlation([row["estimated_s"] for row in rows], [row["median_s"] for row in rows])


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's, ties by mean rank."""
    return statistics.correlation(_ranks(first), _ranks(second))


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + sum(other == value for other in values) / 2
        for value in values
    ]


def calibration() -> list[dict[str, Any]]:
    """Estimated against measured times of single operators here; the error of what was not fitted."""
    from workers.trainer.overlap.peers import run_peers

    rows = run_peers({"mode": "calibrate"})[0]["samples"]
    return [
        {
            "kind": kind,
            "sizes": len(errors := _errors(rows, kind)),
            "error_mean": statistics.fmean(errors),
            "error_max": max(errors),
        }
        for kind in dict.fromkeys(row["kind"] for row in rows)
    ]


def _errors(rows: list[dict[str, Any]], kind: str) -> list[float]:
    return [abs(row["error"]) for row in rows if row["kind"] == kind and not row["fitted"]]
