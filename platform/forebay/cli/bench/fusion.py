"""`forebay bench fusion`: throughput of fused trials against three other ways to train the same trials."""

from typing import Any

import click

from forebay.cli.bench import report
from forebay.cli.errors import BadInput
from forebay.cli.output import say

_GOALS = {"mlp-64 batch 32": 6.0, "mlp-64 batch 64": 4.0, "cnn": 1.5, "transformer": 3.0}


@click.command(name="fusion")
@click.option("--device", default="cpu", show_default=True, help="cpu, or a device of PyTorch such as cuda.")
@click.option("--trials", type=click.IntRange(2, 1024), help="Trials per model, in place of each case's own.")
@report.options(rounds=7, quick_rounds=3)
def command(device: str, trials: int | None, as_json: bool, quick: bool, rounds: int) -> None:
    """Fused training against one by one, torch.func.vmap and separate processes.

    Every case trains the same trials with SGD and momentum on random batches: an MLP of width 64 with four
    layers, surrogates that convolve images and signals, and a transformer surrogate. Speed-ups are per trial.
    """
    from forebay.cli.bench.fusion_cases import cases, contenders

    _check(device)
    results: list[dict[str, Any]] = []
    for case in cases(quick, device, trials):
        say(f"{case.name}: {case.trials} trials, {case.steps} steps per round")
        with contenders(case) as runs:
            times = report.interleaved(runs, rounds)
        results.append(_result(case.name, case.trials, case.batch, case.steps, times))
    header = (
        "model",
        "F",
        "batch",
        "fused",
        "one by one",
        "vmap",
        "processes",
        "speed-up",
        "over vmap",
        "goal",
    )
    rows = [_row(result) for result in results]
    body = {"device": _named(device), "results": results}
    report.show("fusion", rounds, quick, as_json, body, [f"on {_named(device)}", *report.table(header, rows)])


def _check(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"--device is '{device}', which PyTorch cannot use here: {reason}") from None


def _named(device: str) -> str:
    """The name of a GPU, or `cpu`."""
    import torch

    return "cpu" if device == "cpu" else torch.cuda.get_device_name(device)


def _result(name: str, trials: int, batch: int, steps: int, times: dict[str, report.Times]) -> dict[str, Any]:
    fused = times["fused"].median_s
    return {
        "model": name,
        "trials": trials,
        "batch": batch,
        "steps": steps,
        "trial_steps_per_s": {way: trials * steps / spent.median_s for way, spent in times.items()},
        "speedup": {way: spent.median_s / fused for way, spent in times.items() if way != "fused"},
        "goal_over_one_by_one": _GOALS.get(name),
        "times": {way: spent.as_dict() for way, spent in times.items()},
    }


def _row(result: dict[str, Any]) -> tuple[Any, ...]:
    speeds = result["trial_steps_per_s"]
    goal = result["goal_over_one_by_one"]
    return (
        result["model"],
        result["trials"],
        result["batch"],
        *(f"{speeds[way]:.0f}/s" for way in ("fused", "one_by_one", "vmap", "processes")),
        f"{result['speedup']['one_by_one']:.2f}x",
        f"{result['speedup']['vmap']:.2f}x",
        "-" if goal is None else f"{goal:g}x",
    )
