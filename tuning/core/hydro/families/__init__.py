"""How each family of layers and functions treats the trial dimension; importing this registers all rules."""

from tuning.core.hydro.families import (  # noqa: F401
    activation,
    arithmetic,
    attention,
    convolution,
    criterion,
    dropout,
    embedding,
    linear,
    normalization,
    pooling,
    recurrent,
    reduction,
    shape,
    structure,
)
from tuning.core.hydro.families.arithmetic import plain_sums
from tuning.core.hydro.families.convolution import grouped
from tuning.core.hydro.families.linear import product
from tuning.core.hydro.families.normalization import batch_norm

overwritable = frozenset({product, grouped, batch_norm, *plain_sums})
"""Functions whose result is fresh memory that their own backward pass does not read."""
