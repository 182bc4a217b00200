"""Schedulers of trials: ASHA in its stopping and promotion forms; FIFO is ASHA without rungs."""

from tuning.core.halving.asha import Ladder, rung_epochs
from tuning.core.halving.ranking import rank_key, ranked

__all__ = ["Ladder", "rank_key", "ranked", "rung_epochs"]
