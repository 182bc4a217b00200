"""Forebay in Python: `import forebay`. Everything is loaded when it is first used."""

from importlib import import_module
from typing import Any

_HOME = {
    **dict.fromkeys(
        ("DatasetCard", "Workload", "workload", "choice", "grid", "loguniform", "qloguniform", "qrandint"),
        "forebay.declare",
    ),
    **dict.fromkeys(("quniform", "randint", "uniform", "when"), "forebay.declare"),
    **dict.fromkeys(
        ("prepare_model", "prepare_data_loader", "prepare_optimizer", "prepare_scheduler", "losses"),
        "forebay.training",
    ),
    **dict.fromkeys(("backward", "clip_grad_norm_", "report"), "forebay.training"),
    **dict.fromkeys(("TuneResult", "rank_fidelity"), "forebay.tuner"),
    "tune": "forebay.tuner",
    "Client": "forebay.client",
    "Program": "forebay.program",
    "lend_bubbles": "forebay.lending",
}
"""Public name to the module that defines it, so that `import forebay` loads neither PyTorch nor a client."""

__all__ = sorted([*_HOME, "hydro"])


def __getattr__(name: str) -> Any:
    if name == "hydro":
        return import_module("forebay.hydro")
    if name not in _HOME:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
