"""Search methods: random, grid, Optuna's samplers; deterministic by seed, rebuilt from a log."""

from tuning.core.search.searcher import SEARCHES, LoggedSearcher, Searcher, check_grid, make_searcher
from tuning.core.search.seeds import derive_seed

__all__ = ["SEARCHES", "LoggedSearcher", "Searcher", "check_grid", "derive_seed", "make_searcher"]
