"""One thing the doctor looked at."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is: a blocking fault keeps the platform from starting."""

    OK = "ok"
    WARNING = "warning"
    BLOCKS = "blocks"


@dataclass(frozen=True)
class Finding:
    """A sentence about what was found and, where something is wrong, what to do."""

    name: str
    level: Level
    detail: str
    advice: str = ""


def ok(name: str, detail: str) -> Finding:
    return Finding(name, Level.OK, detail)


def warning(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, Level.WARNING, detail, advice)


def blocks(name: str, detail: str, advice: str) -> Finding:
    return Finding(name, Level.BLOCKS, detail, advice)


def graded(name: str, value: float, unit: str, *, least: float, enough: float, advice: str) -> Finding:
    """A quantity: below `least` it blocks, below `enough` it is a warning."""
    detail = f"{value:.1f} {unit}" if isinstance(value, float) else f"{value} {unit}"
    if value < least:
        return blocks(name, f"{detail}, at least {least:g} needed", advice)
    if value < enough:
        return warning(name, f"{detail}, {enough:g} recommended", advice)
    return ok(name, detail)
