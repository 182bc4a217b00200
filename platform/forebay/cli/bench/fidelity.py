"""`forebay bench fidelity`: do surrogates rank configurations as the full-width models do?"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from forebay.cli.bench import report
from forebay.cli.output import say

TOP_K = 3
LEAST = 4


@dataclass(frozen=True)
class Case:
    """One workload: how many configurations, and the epochs of surrogates and full models alike."""

    workload: str
    configurations: int
    epochs: int | None
    quick_configurations: int
    quick_epochs: int


CASES = {
    case.workload: case
    for case in (
        Case("digits-mlp", 32, None, 16, 6),
        Case("mnist1d-conv", 32, None, 16, 6),
        Case("pydoc-gpt", 16, 3, 8, 1),
    )
}


@click.command(name="fidelity")
@click.option(
    "--workload", "workloads", multiple=True, type=click.Choice(tuple(CASES)), help="All, if not given."
)
@click.option("--configurations", type=click.IntRange(min=LEAST), help="Configurations of each workload.")
@click.option("--epochs", "asked_epochs", type=click.IntRange(min=1), help="Of narrow and full models.")
@click.option(
    "--scaling", type=click.IntRange(min=2), default=8, show_default=True, help="Of the surrogates."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of everything random."
)
@report.options(rounds=1, quick_rounds=1)
def command(
    workloads: tuple[str, ...],
    configurations: int | None,
    asked_epochs: int | None,
    scaling: int,
    seed: int,
    as_json: bool,
    quick: bool,
    rounds: int,
) -> None:
    """Train the same random configurations narrow and at full width, and compare the two rankings.

    Spearman's rank correlation, the overlap of the best three, and the regret: how much worse than the best
    full model the surrogates' first choice is, and the best of their first three. Both models of a
    configuration train for the same epochs. Another round takes another seed.
    """
    results = []
    for name in workloads or tuple(CASES):
        for number in range(rounds):
            case = _sized(CASES[name], configurations, asked_epochs, quick)
            results.append(_measured(case, scaling, seed + number))
            say(f"{name}: {results[-1]['seconds']:.0f} s")
    rows = [_row(result) for result in results]
    header = ("workload", "metric", "configurations", "epochs", "Spearman", "best 3 shared", "regret of 1st",
              "regret of first 3", "full range", "seconds")  # fmt: skip
    report.show("fidelity", rounds, quick, as_json, {"results": results}, report.table(header, rows))


def _sized(case: Case, configurations: int | None, epochs: int | None, quick: bool) -> Case:
    """Return the case with the sizes of a quick run, and those that were asked for."""
    if quick:
        case = replace(case, configurations=case.quick_configurations, epochs=case.quick_epochs)
    return replace(case, configurations=configurations or case.configurations, epochs=epochs or case.epochs)


def _measured(case: Case, scaling: int, seed: int) -> dict[str, Any]:
    from forebay.tuner import rank_fidelity

    began = time.perf_counter()
    found = rank_fidelity(
        case.workload,
        configurations=case.configurations,
        top_k=TOP_K,
        scaling=scaling,
        seed=seed,
        epochs=case.epochs,
    )
    seconds = time.perf_counter() - began
    return {
        "workload": case.workload,
        **found,
        "epochs": case.epochs or _own_epochs(case.workload),
        "seed": seed,
        "full_range": _range(found["pairs"]),
        "seconds": seconds,
    }


def _own_epochs(workload: str) -> int:
    from workers.trainer.loading import load_workload

    return int(load_workload(workload, {}).epochs)


def _range(pairs: list[Mapping[str, Any]]) -> list[float | None]:
    """Return the smallest and the largest full-width metric, against which a regret is large or small."""
    values = [pair["full"] for pair in pairs if pair["full"] is not None]
    return [min(values, default=None), max(values, default=None)]


def _row(result: Mapping[str, Any]) -> tuple[Any, ...]:
    low, high = result["full_range"]
    return (
        result["workload"],
        result["metric"],
        result["configurations"],
        result["epochs"],
        _text(result["spearman"], ".2f"),
        f"{result['overlap']:.0%}",
        _text(result["regret_top_1"], ".4g"),
        _text(result["regret_top_k"], ".4g"),
        f"{_text(low, '.4g')} to {_text(high, '.4g')}",
        f"{result['seconds']:.0f}",
    )


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
