"""From surrogates to target models: Eager Transfer and the fidelity of the ranking."""

from tuning.core.transfer.eager import Standing, best_first, eager_target, superseded
from tuning.core.transfer.fidelity import Fidelity, fidelity, spearman

__all__ = ["Fidelity", "Standing", "best_first", "eager_target", "fidelity", "spearman", "superseded"]
