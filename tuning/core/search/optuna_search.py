"""Optuna's samplers by ask and tell, in batches, deterministic by seed.

A quantised range is the index of its point for Optuna (a quantised logarithmic one is continuous there and
moved to its grid here), a choice is the position of its value, so that values of any type work.
"""

import math
import warnings
from typing import Any

from tuning.core.errors import SearchError
from tuning.core.search.seeds import derive_seed
from tuning.core.space import Config, Distribution, Space
from tuning.core.space.distributions import Choice, LogUniform, QLogUniform, QUniform, Uniform

# how many configurations are asked for at once, before any of their results is known
BATCH = 8

SAMPLERS = ("tpe", "gp", "cmaes", "qmc", "nsgaii")


def _sampler(name: str, seed: int) -> Any:
    from optuna import samplers
    from optuna.exceptions import ExperimentalWarning

    if name == "tpe":
        return samplers.TPESampler(seed=seed, constant_liar=True)
    if name == "gp":
        return samplers.GPSampler(seed=seed)
    if name == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    if name == "qmc":
        with warnings.catch_warnings():
            # it says on every use that its arguments may still change
            warnings.simplefilter("ignore", ExperimentalWarning)
            return samplers.QMCSampler(
                seed=seed, scramble=True, warn_independent_sampling=False, warn_asynchronous_seeding=False
            )
    if name == "nsgaii":
        return samplers.NSGAIISampler(seed=seed, population_size=20)
    raise SearchError(f"search must be one of random, grid, {', '.join(SAMPLERS)}; got {name}")


class OptunaSearch:
    """One Optuna study in memory; `ask` in batches, `tell` in any order."""

    batch: int | None = BATCH

    def __init__(self, name: str, space: Space, seed: int, mode: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = space
        sampler = _sampler(name, derive_seed(seed, "search") % 2**32)
        self._study = optuna.create_study(
            sampler=sampler, direction="maximize" if mode == "max" else "minimize"
        )
        self._failed = optuna.trial.TrialState.FAIL

    def ask(self, count: int) -> list[Config]:
        """Return `count` configurations that know nothing of each other's results."""
        return [self._next() for _ in range(count)]

    def tell(self, number: int, value: float | None) -> None:
        """Report the final metric of a trial; None or a non-finite number is a failure."""
        if value is None or not math.isfinite(value):
            self._study.tell(number, state=self._failed)
        else:
            self._study.tell(number, value)

    def _next(self) -> Config:
        trial = self._study.ask()
        config: Config = {}
        for parameter in self.space.parameters:
            if parameter.active(config):
                config[parameter.name] = _suggest(trial, parameter.name, parameter.distribution)
        return config


def _suggest(trial: Any, name: str, distribution: Distribution) -> Any:
    if isinstance(distribution, Choice):
        index = trial.suggest_categorical(name, list(range(len(distribution.values))))
        return distribution.points()[index]
    if isinstance(distribution, QLogUniform):
        return distribution.nearest(trial.suggest_float(name, distribution.low, distribution.high, log=True))
    if isinstance(distribution, QUniform):
        return distribution.at(trial.suggest_int(name, 0, distribution.last))
    if isinstance(distribution, Uniform):
        log = isinstance(distribution, LogUniform)
        return trial.suggest_float(name, distribution.low, distribution.high, log=log)
    raise SearchError(f"search cannot draw `{name}`, a {distribution.kind}")
