"""`forebay`: one command, each subcommand loaded only when it is asked for."""

import sys
from importlib import import_module

import click

from forebay.cli.errors import Exit

# name -> (module with a click command called `command`, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "tune": ("forebay.cli.tune", "Run a whole study here, without a server."),
    "plan": ("forebay.cli.plan", "Plan a hybrid-parallel layout on devices of unequal speed."),
    "simulate": ("forebay.cli.simulate", "Simulate the pipeline schedule of a layout."),
    "detect": ("forebay.cli.detect", "Find slow, stopped or flapping devices in step logs."),
    "overlap": ("forebay.cli.overlap", "Schedule communication under computation on a graph."),
    "schedule": ("forebay.cli.schedule", "Simulate a scheduling policy on a trace of jobs."),
    "place": ("forebay.cli.place", "Simulate GPU placement and fragmentation on a trace of pods."),
    "bench": ("forebay.cli.bench", "Measure Forebay against its baselines on this machine."),
    "up": ("forebay.cli.up", "Start the whole platform on this machine."),
    "down": ("forebay.cli.down", "Stop the platform of this machine."),
    "doctor": ("forebay.cli.doctor", "Explain what is wrong with this machine."),
    "login": ("forebay.cli.login", "Remember a server and a token."),
    "submit": ("forebay.cli.submit", "Submit a job file."),
    "jobs": ("forebay.cli.jobs", "List jobs."),
    "show": ("forebay.cli.show", "Show one job."),
    "watch": ("forebay.cli.watch", "Follow a job's events."),
    "cancel": ("forebay.cli.cancel", "Cancel a job."),
    "resume": ("forebay.cli.resume", "Resume a failed or cancelled job."),
    "approve": ("forebay.cli.approve", "Approve a plan for a training job."),
    "reject": ("forebay.cli.reject", "Reject a plan for a training job."),
    "inject": ("forebay.cli.inject", "Slow down, halt or kill a rank of a training job."),
    "lend": ("forebay.cli.lend", "Stop the lending of a training job's bubbles, or allow it again."),
    "export": ("forebay.cli.export", "Export a job's trials as CSV or Parquet."),
    "token": ("forebay.cli.token", "Create, list and revoke API tokens."),
}


class LazyGroup(click.Group):
    """Imports a subcommand's module on first use, so that `forebay plan` never pays for torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="forebay")
def cli() -> None:
    """Tune and train large models; keep their clusters healthy."""


def main() -> None:
    """Run the command line; every outcome is one of the documented exit codes."""
    try:
        outcome = cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(Exit.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    sys.exit(outcome if isinstance(outcome, int) else Exit.SUCCESS)


if __name__ == "__main__":
    main()
