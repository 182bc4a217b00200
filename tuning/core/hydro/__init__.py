"""Hydro: narrow surrogates whose hyperparameters transfer, and many trials trained as one module."""

from importlib import import_module
from typing import Any

_HOME = {
    "FuseError": "errors",
    "HydroError": "errors",
    "HydroWarning": "errors",
    "ShrinkError": "errors",
    "TraceError": "errors",
    "ParameterRule": "rules",
    "Parametrization": "rules",
    "attach_rules": "rules",
    "optimizer_family_of": "rules",
    "parametrization_of": "rules",
    "rules_of": "rules",
    "trace": "tracing",
    "shrink": "surrogate",
    "coordinate_check": "coordinates",
    "transfer_report": "transfer",
    "FusedModule": "fused_module",
    "TrialOptimizer": "optimizers",
    "TrialScheduler": "schedules",
    "backward": "trial_losses",
    "clip_grad_norm_": "trial_losses",
    "container_state": "container_files",
    "defuse": "defusion",
    "extract": "fused_module",
    "fuse": "fusing",
    "join_states": "container_files",
    "load_container_state": "container_files",
    "losses": "trial_losses",
    "merge": "defusion",
    "optimizer": "optimizers",
    "scheduler": "schedules",
    "select_trials": "container_files",
}
"""Public name to the file that defines it; loaded at first use, since PyTorch takes a second to import."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def load_all() -> None:
    """Load every part now, so that processes forked from this one need not."""
    for name in _HOME:
        __getattr__(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
