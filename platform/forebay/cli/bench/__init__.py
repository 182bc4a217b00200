"""`forebay bench`: measured comparisons, each against its baselines in the same run on the same machine."""

from importlib import import_module

import click

# name -> (module with a click command called `command`, one line of help)
BENCHES: dict[str, tuple[str, str]] = {
    "tune": ("forebay.cli.bench.tune", "Makespan of a study against Ray Tune and Optuna."),
    "fusion": ("forebay.cli.bench.fusion", "Fused training against one by one, vmap and processes."),
    "compile": ("forebay.cli.bench.compiling", "Compiled steps of targets against eager ones."),
    "fidelity": ("forebay.cli.bench.fidelity", "Ranking by surrogates against full-width models."),
    "bubbles": ("forebay.cli.bench.bubbles", "Trials in pipeline bubbles against naive co-location."),
    "detect": ("forebay.cli.bench.detect", "Fail-slow detection: quality, delay and cost."),
    "plan": ("forebay.cli.bench.plan", "Layout planning: gap to the bound and time to plan."),
    "reconfigure": ("forebay.cli.bench.reconfigure", "Live changes of layout: pause per phase, leaks."),
    "overlap": ("forebay.cli.bench.overlap", "Overlap schedules against serial and round-robin order."),
    "schedule": ("forebay.cli.bench.schedule", "Scheduling policies on whole traces: figures and speed."),
    "platform": ("forebay.cli.bench.platform", "The web platform: requests, events and start-up."),
}


class LazyBenches(click.Group):
    """Imports a bench on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(BENCHES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in BENCHES:
            return None
        found: click.Command = import_module(BENCHES[cmd_name][0]).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Benches"):
            formatter.write_dl([(name, line) for name, (_, line) in BENCHES.items()])


@click.group(name="bench", cls=LazyBenches)
def command() -> None:
    """Measure Forebay against its baselines on this machine."""
