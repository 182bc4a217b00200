"""The command line's exit codes and the one error that carries them."""

from enum import IntEnum

import click


class Exit(IntEnum):
    """What a script can rely on (documented in docs/cli.md)."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    NOT_ALLOWED = 3
    CONFLICT = 4
    TIMED_OUT = 5
    UNREACHABLE = 6
    OBJECTIVE_NOT_MET = 7
    INTERRUPTED = 130


class CommandError(click.ClickException):
    """One clear sentence for people and an exit code for scripts."""

    def __init__(self, message: str, exit_code: Exit) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)  # type: ignore[misc]  # a class variable in click, an instance one here


class BadInput(CommandError):
    """Input that breaks a rule; the message names the field and the rule."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.USAGE)
