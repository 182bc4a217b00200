"""Optimizers that step many trials at once, each with its own hyperparameters and state."""

from tuning.core.hydro.optimizers.making import optimizer
from tuning.core.hydro.optimizers.trial_optimizer import TrialOptimizer

__all__ = ["TrialOptimizer", "optimizer"]
