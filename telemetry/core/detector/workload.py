"""The workload model: how long a micro-batch should take, from its tokens and squared lengths.

t = t0 + alpha * tokens + beta * sum of squared sequence lengths (ResiHP, arXiv 2605.06374), fitted per stage
by iteratively reweighted least squares with Huber weights on samples of all its ranks while nothing is wrong.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from telemetry.core.detector.baseline import SETTLE

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

MIN_STEPS = 5
# Rows at which the model is fitted (again); after the last it is left alone.
FIT_AT = (20, 64, 192, 512)
# Before that many rows a bad fit may be bad luck.
ENOUGH = 64
ROWS_PER_STEP = 8
FOLDS = 5
HUBER = 1.345
WORST_MAPE = 0.10
# Workloads that differ less than this need no model.
SAME_WORKLOAD = 0.01
# A design whose columns are this close to dependent cannot tell their coefficients apart.
WORST_CONDITION = 1e4


@dataclass(frozen=True)
class Fit:
    """Coefficients in seconds, seconds per token, seconds per squared token; `mape` on held-out samples."""

    t0: float
    alpha: float
    beta: float
    mape: float = 0.0
    note: str = ""

    def predict(self, tokens: Array, sum_sq: Array) -> Array:
        """Return expected seconds."""
        return self.t0 + self.alpha * tokens + self.beta * sum_sq


class StageModel:
    """The samples of one stage and the fit through them; memory does not grow with time."""

    def __init__(self, stage: int) -> None:
        self.stage = stage
        self.rows = np.zeros((FIT_AT[-1], 3))
        self.filled = 0
        self.steps = 0
        # The steps of a start take long whatever their work.
        self.warm_up = SETTLE + 1
        self.least, self.most = np.full(2, np.inf), np.zeros(2)
        self.fitted_at = 0
        self.fit: Fit | None = None
        self.varies = False

    @property
    def usable(self) -> bool:
        """Whether there is a fit that predicts well enough to judge by."""
        return self.fit is not None and self.fit.mape <= WORST_MAPE

    @property
    def refused(self) -> bool:
        """Whether work varies and a fit was tried, in vain."""
        return self.varies and self.fitted_at >= ENOUGH and not self.usable

    @property
    def due(self) -> int:
        """At how many rows the next fit is to be made, if now; 0 where it is not time."""
        rows = max((rows for rows in FIT_AT if rows <= self.filled), default=0)
        return rows if rows > self.fitted_at and self.steps >= MIN_STEPS else 0

    def add(self, tokens: Array, sum_sq: Array, seconds: Array) -> None:
        """Add a step's samples, those of a few ranks in turn."""
        if not len(tokens):
            return
        self._note_range(tokens, sum_sq)
        self.warm_up = max(0, self.warm_up - 1)
        if self.warm_up or self.filled == len(self.rows):
            return
        chosen = np.arange(len(tokens))
        if len(tokens) > ROWS_PER_STEP:
            chosen = (chosen[:ROWS_PER_STEP] * len(tokens) // ROWS_PER_STEP + self.steps) % len(tokens)
        chosen = chosen[: len(self.rows) - self.filled]
        new = np.stack([tokens[chosen], sum_sq[chosen], seconds[chosen]], axis=1)
        self.rows[self.filled : self.filled + len(new)] = new
        self.filled += len(new)
        self.steps += 1

    def _note_range(self, tokens: Array, sum_sq: Array) -> None:
        work = np.stack([tokens, sum_sq], axis=1)
        self.least = np.minimum(self.least, work.min(axis=0))
        self.most = np.maximum(self.most, work.max(axis=0))
        self.varies = bool((self.most - self.least > SAME_WORKLOAD * self.most).any())

    def fit_again(self) -> bool:
        """Fit all samples; returns whether what is expected of a workload changed materially."""
        before, self.fitted_at = self.usable, self.due
        self.fit = fit_workload(self.rows[: self.filled])
        return self.varies and before != self.usable

    def log_factor(self, tokens: Array, sum_sq: Array) -> Array:
        """Return the log of expected time over that of the usual workload; NaN while that is not known."""
        if not self.varies or self.refused:
            return np.zeros(len(tokens))
        if self.fit is None or not self.usable:
            return np.full(len(tokens), np.nan)
        usual = np.median(self.rows[: self.filled, :2], axis=0)
        expected = self.fit.predict(tokens, sum_sq) / self.fit.predict(usual[:1], usual[1:])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(expected > 0, np.log(expected), np.nan), dtype=np.float64)


def fit_workload(rows: Array) -> Fit:
    """Fit (tokens, sum_sq, seconds) rows; the error is that of five fits, each on what it did not see."""
    columns, note = _columns(rows)
    error = np.empty(len(rows))
    for fold in range(FOLDS):
        held = np.arange(len(rows)) % FOLDS == fold
        test = rows[held]
        error[held] = test[:, 2] / _solve(rows[~held], columns, note).predict(test[:, 0], test[:, 1]) - 1
    # The samples of one slow device must not make the model of the healthy ones look bad.
    middle = np.median(error)
    spread = 1.4826 * np.median(np.abs(error - middle))
    healthy = np.abs(error - middle) <= max(5 * spread, 0.02)
    return replace(_solve(rows, columns, note), mape=float(np.mean(np.abs(error[healthy]))))


def _solve(rows: Array, columns: list[str], note: str) -> Fit:
    coefficients = _huber(_design(rows, columns), rows[:, 2])
    values = dict.fromkeys(("one", "tokens", "sum_sq"), 0.0) | dict(zip(columns, coefficients, strict=True))
    return Fit(float(values["one"]), float(values["tokens"]), float(values["sum_sq"]), note=note)


def _columns(rows: Array) -> tuple[list[str], str]:
    """Return the columns that the samples can tell apart, and what was given up."""
    candidates = [["one", "tokens", "sum_sq"], ["one", "sum_sq"], ["one", "tokens"], ["one"]]
    for columns in candidates:
        design = _design(rows, columns)
        largest = np.abs(design).max(axis=0)
        if (largest > 0).all() and np.linalg.cond(design / largest) < WORST_CONDITION:
            given_up = [name for name in ("tokens", "sum_sq") if name not in columns]
            if not given_up:
                return columns, ""
            return columns, f"{' and '.join(given_up)} cannot be told apart from the rest in these samples"
    return ["one"], "the samples do not vary"


def _design(rows: Array, columns: list[str]) -> Array:
    source = {"one": np.ones(len(rows)), "tokens": rows[:, 0], "sum_sq": rows[:, 1]}
    return np.stack([source[name] for name in columns], axis=1)


def _huber(design: Array, seconds: Array) -> Array:
    # Relative errors count, so that short micro-batches weigh as much as long ones.
    scale = np.abs(design).max(axis=0)
    relative = design / scale / seconds[:, None]
    coefficients = np.zeros(design.shape[1])
    robust = np.ones(len(seconds))
    for _ in range(12):
        weighted = relative * np.sqrt(robust)[:, None]
        before = coefficients
        coefficients, *_ = np.linalg.lstsq(weighted, np.sqrt(robust), rcond=None)
        if np.allclose(before, coefficients, rtol=1e-5, atol=0.0):
            break
        residual = 1 - relative @ coefficients
        spread = max(1.4826 * float(np.median(np.abs(residual - np.median(residual)))), 1e-6)
        robust = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(residual), 1e-12))
    return np.asarray(coefficients / scale, dtype=np.float64)
