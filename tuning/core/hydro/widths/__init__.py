"""Width analysis: what every size of a recorded model depends on, and what it becomes in a surrogate."""

from tuning.core.hydro.widths import cutting, factories, layers, movement, products, recurrent, reductions
from tuning.core.hydro.widths.analysis import Analysis, Correction, Use
from tuning.core.hydro.widths.atoms import Dim, is_fixed, is_width, size_of
from tuning.core.hydro.widths.sizes import Sizes

__all__ = ["Analysis", "Correction", "Dim", "RULES", "Sizes", "Use", "is_fixed", "is_width", "size_of"]

RULES = (cutting, factories, layers, movement, products, recurrent, reductions)
"""The modules whose import registers the rules."""
