"""What people write to be tuned: `Workload`, `@workload`, and the words of a search space."""

from tuning.core.space import (
    choice,
    grid,
    loguniform,
    qloguniform,
    qrandint,
    quniform,
    randint,
    uniform,
    when,
)
from tuning.core.workload import DatasetCard, Workload, workload

__all__ = [
    "DatasetCard",
    "Workload",
    "choice",
    "grid",
    "loguniform",
    "qloguniform",
    "qrandint",
    "quniform",
    "randint",
    "uniform",
    "when",
    "workload",
]
