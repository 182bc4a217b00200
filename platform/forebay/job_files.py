"""Job files: read here, so that a mistake is named with the file before anything is sent."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobs.core.document import parse_text, parse_yaml
from jobs.core.errors import InvalidSpec


class BadJobFile(Exception):
    """A job file that cannot be read; the message names the file and the rule."""


def read_job_file(path: Path) -> dict[str, Any]:
    """Return the content of a job file, YAML or JSON; raise BadJobFile."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BadJobFile(f"{path}: {reason}") from None
    return parse_job(text, str(path))


def parse_job(text: str, name: str) -> dict[str, Any]:
    """Return the content of a job file's text; raise BadJobFile."""
    try:
        data = parse_text(text, name)
    except InvalidSpec as error:
        faults = "; ".join(f"{pointer} {rule}".strip() for pointer, rule in error.faults)
        raise BadJobFile(f"{name}: {faults.replace('the body is', 'this is', 1)}") from None
    if not isinstance(data, dict):
        raise BadJobFile(f"{name}: a job is an object with the fields kind, name, team, spec, objective")
    return data


def change(job: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return the job with values replaced, each named by its path: `spec.trials=5`; raise BadJobFile."""
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        names = path.strip().split(".")
        if not equals or not all(names):
            raise BadJobFile(f"--set {assignment}: must look like spec.trials=5")
        try:
            value = parse_yaml(text)
        except InvalidSpec as error:
            raise BadJobFile(f"--set {assignment}: {error.faults[0][1]}") from None
        _put(job, names, value, assignment)
    return job


def _put(job: dict[str, Any], names: list[str], value: Any, assignment: str) -> None:
    here: Any = job
    for depth, name in enumerate(names[:-1]):
        if name not in here or here[name] is None:
            here[name] = {}
        here = here[name]
        if not isinstance(here, dict):
            raise BadJobFile(f"--set {assignment}: {'.'.join(names[: depth + 1])} is not an object")
    here[names[-1]] = value
