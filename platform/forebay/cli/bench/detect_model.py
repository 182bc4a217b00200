"""How far the workload model of `forebay bench detect` is off, for a micro-batch and for an iteration."""

import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.cli.errors import CommandError, Exit

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Iterations of a start take long whatever their work.
SETTLE = 10
PATIENCE_S = 300.0
WIDTH, MICROBATCH_TOKENS, MICROBATCHES = 128, 512, 8
LAYOUT = {
    "replicas": [
        {
            "microbatches": MICROBATCHES,
            "stages": [{"devices": ["d0"], "layers": 2}, {"devices": ["d1"], "layers": 2}],
        }
    ]
}
Rows = dict[tuple[int, int], list[float]]  # (step, micro-batch) -> [tokens, sum of squared lengths, seconds]


def real_run(steps: int) -> list[dict[str, Any]]:
    """Train pydoc-gpt on two stages, each on a core, and fit each stage's times; one row for each stage."""
    return [{"microbatches": len(rows), **errors(rows)} for rows in _measured(steps)]


def errors(rows: Rows) -> dict[str, float]:
    """Mean absolute errors in shares: of a micro-batch, and of all of an iteration's together.

    That of iterations is of the second half of the run, told by a fit to the first.
    """
    from telemetry.core.detector.workload import fit_workload

    table = np.array([[step, *rows[step, number]] for step, number in sorted(rows)])
    early = table[:, 0] <= np.median(table[:, 0])
    fit = fit_workload(table[early, 1:])
    late = table[~early]
    told = fit.predict(late[:, 1], late[:, 2])
    return {
        "microbatch_mape": fit_workload(table[:, 1:]).mape,
        "iteration_mape": float(np.mean(np.abs(_by_step(late, told) / _by_step(late, late[:, 3]) - 1))),
    }


def _by_step(table: "NDArray[np.float64]", values: "NDArray[np.float64]") -> "NDArray[np.float64]":
    _, places = np.unique(table[:, 0], return_inverse=True)
    return np.bincount(places, weights=values).astype(np.float64)


def _measured(steps: int) -> list[Rows]:
    from workers.trainer.parallel.fleet import Fleet
    from workers.trainer.parallel.local import LocalProcesses
    from workers.trainer.parallel.spec import RunSpec

    found: list[Rows] = [{}, {}]
    with tempfile.TemporaryDirectory() as folder:
        spec = RunSpec(
            devices=("d0", "d1"),
            layout=LAYOUT,
            folder=folder,
            width=WIDTH,
            microbatch_tokens=MICROBATCH_TOKENS,
            steps=1_000_000,
        )
        fleet = Fleet(spec, LocalProcesses())
        try:
            fleet.start()
            _collect(fleet, steps, found)
        finally:
            fleet.stop()
    return found


def _collect(fleet: Any, steps: int, found: list[Rows]) -> None:
    gives_up_s = time.monotonic() + PATIENCE_S
    while min(len(rows) for rows in found) < steps * MICROBATCHES:
        for event in fleet.poll():
            if event["kind"] in ("failed", "abandoned"):
                raise CommandError(f"rank {event['plan_rank']}: {event['reason']}", Exit.FAILED)
            if event["kind"] == "iteration" and event["step"] > SETTLE:
                _add(found[event["plan_rank"]], event)
        if fleet.lost() or time.monotonic() > gives_up_s:
            raise CommandError("the training did not get on", Exit.FAILED)
        time.sleep(0.01)


def _add(rows: Rows, event: dict[str, Any]) -> None:
    for chunk in event["chunks"]:
        row = rows.setdefault((event["step"], chunk["microbatch"]), [0.0, 0.0, 0.0])
        if chunk["type"] == "F":
            row[0], row[1] = float(chunk["tokens"]), float(chunk["sum_squared_lengths"])
        row[2] += float(chunk["seconds"])
