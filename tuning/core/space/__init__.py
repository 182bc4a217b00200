"""Search spaces: declared in Python or read from a job file, sampled, encoded, described as a form."""

from tuning.core.space.declare import (
    choice,
    declared_space,
    grid,
    loguniform,
    qloguniform,
    qrandint,
    quniform,
    randint,
    uniform,
    when,
)
from tuning.core.space.distributions import Distribution
from tuning.core.space.parse import parse_distribution
from tuning.core.space.schema import distribution_schemas, form_fields
from tuning.core.space.space import Condition, Config, Parameter, Space, fingerprint, parse_space

__all__ = [
    "Condition",
    "Config",
    "Distribution",
    "Parameter",
    "Space",
    "choice",
    "declared_space",
    "distribution_schemas",
    "fingerprint",
    "form_fields",
    "grid",
    "loguniform",
    "parse_distribution",
    "parse_space",
    "qloguniform",
    "qrandint",
    "quniform",
    "randint",
    "uniform",
    "when",
]
