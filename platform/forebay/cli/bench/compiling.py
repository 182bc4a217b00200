"""`forebay bench compile`: what torch.compile costs and saves for the targets of the bundled workloads."""

import tempfile
from typing import Any

import click

from forebay.cli.bench import report
from forebay.cli.errors import BadInput
from forebay.cli.output import say

WORKLOADS = ("digits-mlp", "mnist1d-conv", "mnist-cnn", "pydoc-gpt")


@click.command(name="compile")
@click.option(
    "--workload", "names", multiple=True, help=f"Only this one, repeatable [{', '.join(WORKLOADS)}]."
)
@click.option(
    "--device", default="cpu", show_default=True, help="cpu, or a device of PyTorch such as cuda:0."
)
@click.option("--batch", type=click.IntRange(min=1), help="Batch size, in place of the one that is drawn.")
@report.options(rounds=7, quick_rounds=3)
def command(
    names: tuple[str, ...], device: str, batch: int | None, as_json: bool, quick: bool, rounds: int
) -> None:
    """Full-width targets with compiled and with eager steps, in turn, and when compiling has paid.

    Kernels are compiled into an empty folder, then for a second model of the same shape out of it. A step is
    a whole training step; on a processor it has one core, as a device of a study has.
    """
    from forebay.cli.bench.compiling_cases import measure
    from tuning.core.errors import TuningError
    from workers.trainer.compiling.compilers import why_off

    missing = why_off(device.partition(":")[0])
    if missing:
        raise BadInput(f"nothing can be compiled for --device {device}: {missing}")
    results: list[dict[str, Any]] = []
    for name in names or WORKLOADS:
        say(f"{name}: compiling its target")
        with tempfile.TemporaryDirectory(prefix="forebay-kernels-") as folder:
            try:
                results.append(measure(name, device, batch, rounds, 4 if quick else 10, folder))
            except TuningError as error:
                raise BadInput(str(error)) from error
    report.show("compile", rounds, quick, as_json, {"device": device, "results": results}, _lines(results))


def _lines(results: list[dict[str, Any]]) -> list[str]:
    header = (
        "target", "batch", "compile s", "again s", "eager ms", "compiled ms", "saved", "even after", "epochs",
        "of its", "weights apart",
    )  # fmt: skip
    return report.table(header, [_row(result) for result in results])


def _row(result: dict[str, Any]) -> tuple[Any, ...]:
    steps, epochs = result["break_even_steps"], result["break_even_epochs"]
    return (
        result["workload"],
        result["batch_size"],
        result["compile_s"],
        result["compile_again_s"],
        result["eager_step_s"] * 1e3,
        result["compiled_step_s"] * 1e3,
        f"{result['saved']:.1%}",
        "never" if steps is None else f"{steps} steps",
        "-" if epochs is None else epochs,
        result["epochs"],
        f"{result['weights_apart']:.0e}",
    )
