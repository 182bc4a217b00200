"""`forebay bench bubbles`: trials in a pipeline's bubbles, against every simpler way to share its devices."""

from typing import Any

import click

from forebay.cli.bench import report
from forebay.cli.errors import BadInput

# Many short turns: what drifts over minutes, a clock rate for one, is the same for a mode and its neighbours.
SECONDS, QUICK_SECONDS = 5.0, 4.0
LEAST_ROUNDS = 1


@click.command(name="bubbles")
@click.option("--seconds", type=click.FloatRange(min=1.0), help="Seconds of one mode in one round.")
@click.option("--simulated-only", is_flag=True, help="Only the simulated settings: no quiet machine needed.")
@report.options(rounds=24, quick_rounds=2)
def command(as_json: bool, quick: bool, rounds: int, seconds: float | None, simulated_only: bool) -> None:
    """A two-stage pipeline trains while fused trials run on its cores, in seven ways, interleaved.

    Main job: pydoc-gpt on two cores by 1F1B. Guests: sixteen fused trials of digits-mlp per core. Slowdown
    is the main job's iteration time over that of the same round without guests.
    """
    from forebay.cli.bench.bubbles_simulated import simulated

    figures: dict[str, Any] = {}
    lines: list[str] = []
    if not simulated_only:
        from forebay.cli.bench.bubbles_figures import figures_of, lines_of
        from forebay.cli.bench.bubbles_run import Experiment, two_cores

        cores = two_cores()
        if cores is None:
            raise BadInput("bubbles: measuring needs Linux and two processor cores; see --simulated-only")
        with Experiment(cores, seconds or (QUICK_SECONDS if quick else SECONDS)) as experiment:
            measured = experiment.run(rounds)
        figures = figures_of(measured)
        lines = lines_of(figures)
    stages = figures.get("main", {}).get("chunk_s")
    figures["simulated"] = simulated(stages)
    lines += simulated_lines(figures["simulated"])
    report.show("bubbles", rounds, quick, as_json, figures, lines)


def simulated_lines(found: dict[str, Any]) -> list[str]:
    """The simulated figures, for people."""
    pipeline, kinds = found["pipeline"], found["kinds"]
    return [
        "",
        f"simulated, {pipeline['setting']}: makespan {pipeline['speedup']:.2f}x shorter with bubbles "
        f"(Hydro's paper: 2.7x)",
        f"simulated, {kinds['setting']}: completion {kinds['speedup']:.2f}x shorter than blind to kinds "
        f"(Hydro's paper: 1.3x)",
    ]
