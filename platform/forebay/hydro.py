"""``from forebay import hydro``: surrogates, width rules and fused training, under one public name."""

from typing import Any

from tuning.core import hydro as _hydro

__all__ = sorted(_hydro.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_hydro, name)


def __dir__() -> list[str]:
    return sorted(__all__)
