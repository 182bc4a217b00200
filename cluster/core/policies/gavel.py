"""Heterogeneity-aware time shares (Gavel: Narayanan et al., OSDI 2020, sections 4 and 5).

X[j, t] is the share of wall time that job j spends on devices of kind t. Each policy is a linear program
over X, solved by HiGHS; rounds then realise X by giving devices to the pairs furthest behind their share.
"""

from collections.abc import Callable

import numpy as np

from cluster.core.workload import FloatColumn, FloatMatrix, IntColumn

ROUND_S = 360.0
Shares = Callable[[FloatMatrix, IntColumn, IntColumn, FloatColumn], FloatMatrix]


def max_min_shares(
    speed: FloatMatrix, devices: IntColumn, workers: IntColumn, remaining: FloatColumn
) -> FloatMatrix:
    """Return X (J, T) that maximises the least normalised throughput, then the sum of all.

    Args:
        speed: steps per second of job j on its gang of kind t (J, T); 0 where it cannot run.
        devices: gang sizes (J,).
        workers: devices of each kind (T,).
        remaining: steps left (J,), not used here.
    """
    equal = workers / workers.sum()
    fair = np.maximum(speed @ equal, 1e-12) / devices
    return _lift_the_least(speed / fair[:, None], devices, workers)


def makespan_shares(
    speed: FloatMatrix, devices: IntColumn, workers: IntColumn, remaining: FloatColumn
) -> FloatMatrix:
    """Return X (J, T) under which the last job ends earliest."""
    return _lift_the_least(speed / np.maximum(remaining, 1e-9)[:, None], devices, workers)


def finish_time_shares(
    speed: FloatMatrix,
    devices: IntColumn,
    workers: IntColumn,
    remaining: FloatColumn,
    elapsed_s: FloatColumn,
    alone_s: FloatColumn,
) -> FloatMatrix:
    """Return X (J, T) with the least worst rho = (elapsed + remaining / throughput) / alone."""
    low, high = 0.0, 1.0
    best: FloatMatrix | None = None
    for _ in range(60):
        found = _reach(speed, devices, workers, remaining, high * alone_s - elapsed_s)
        if found is not None:
            best = found
            break
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        found = _reach(speed, devices, workers, remaining, middle * alone_s - elapsed_s)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    if best is None:
        return blind_shares(speed, devices, workers, remaining)
    return best


def blind_shares(
    speed: FloatMatrix, devices: IntColumn, workers: IntColumn, remaining: FloatColumn
) -> FloatMatrix:
    """Return X (J, T) of max-min fairness that takes all kinds for equal."""
    time_share = min(1.0, float(workers.sum() / np.maximum(devices.sum(), 1)))
    return np.tile(time_share * workers / workers.sum(), (len(devices), 1)) * (speed > 0)


def _reach(
    speed: FloatMatrix, devices: IntColumn, workers: IntColumn, remaining: FloatColumn, left_s: FloatColumn
) -> FloatMatrix | None:
    """Return shares with which every job ends within its time left, or None."""
    if (left_s <= 0).any():
        return None
    needed = remaining / left_s
    if (needed > speed.max(axis=1)).any():
        return None
    shares = _lift_the_least(speed / np.maximum(needed, 1e-12)[:, None], devices, workers)
    reached = ((shares * speed).sum(axis=1) >= needed * (1 - 1e-6)).all()
    return shares if reached else None


def _lift_the_least(value: FloatMatrix, devices: IntColumn, workers: IntColumn) -> FloatMatrix:
    """Maximise z = min_j sum_t value[j, t] X[j, t], then the sum over all jobs of what exceeds it.

    Jobs with equal values and gangs get equal shares (the program is symmetric in them), so that it is
    solved over the distinct ones.
    """
    rows = np.column_stack([value, devices])
    distinct, of_job, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    shares = _solve(distinct[:, :-1], distinct[:, -1] * count, count, workers)
    return shares[of_job.ravel()]


def _solve(value: FloatMatrix, demand: FloatColumn, count: IntColumn, workers: IntColumn) -> FloatMatrix:
    """Solve the two programs over C classes of `count` jobs each that use `demand` devices together."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix, hstack, vstack

    classes, kinds = value.shape
    rows, columns = np.repeat(np.arange(classes), kinds), np.arange(classes * kinds)
    gain = coo_matrix((-value.ravel(), (rows, columns)), shape=(classes, classes * kinds))
    time = coo_matrix((np.ones(classes * kinds), (rows, columns)), shape=(classes, classes * kinds))
    use = coo_matrix((np.repeat(demand, kinds), (np.tile(np.arange(kinds), classes), columns)))
    least = coo_matrix(np.concatenate([np.ones(classes), np.zeros(classes + kinds)])[:, None])
    bounds = [(0, None if useful else 0) for useful in (value.ravel() > 0)]
    upper = np.concatenate([np.zeros(classes), np.ones(classes), workers.astype(np.float64)])
    matrix = hstack([vstack([gain, time, use]), least]).tocsr()
    goal = np.append(np.zeros(classes * kinds), -1.0)
    first = linprog(goal, A_ub=matrix, b_ub=upper, bounds=[*bounds, (0, None)], method="highs")
    if first.x is None:
        return np.zeros_like(value)
    upper[:classes] = -first.x[-1] * (1 - 1e-7)
    best = np.maximum(value.max(axis=1), 1e-300)
    total = -(value / best[:, None] * count[:, None]).ravel()
    second = linprog(total, A_ub=matrix[:, :-1], b_ub=upper, bounds=bounds, method="highs")
    found = first.x[:-1] if second.x is None else second.x
    shares: FloatMatrix = found.reshape(classes, kinds)
    return np.clip(shares, 0.0, 1.0)


def assign_round(
    shares: FloatMatrix, received: FloatMatrix, speed: FloatMatrix, devices: IntColumn, workers: IntColumn
) -> IntColumn:
    """Return each job's kind for the next round (J,), -1 for none.

    Pairs go by share over the fraction of time received so far; devices left over go to whoever still has
    none, in the order of its largest share.

    Args:
        received: rounds each job has had on each kind (J, T).
    """
    had = received / np.maximum(received.sum(axis=1, keepdims=True), 1.0)
    urgency = np.where(shares > 1e-9, shares / np.maximum(had, 1e-3), 0.0)
    kind = np.full(len(devices), -1)
    left = workers.astype(np.int64).copy()
    flat = np.argsort(-urgency, axis=None, kind="stable")
    for index in flat.tolist():
        job, wanted = divmod(index, shares.shape[1])
        if urgency[job, wanted] <= 0:
            break
        if kind[job] < 0 and devices[job] <= left[wanted]:
            kind[job] = wanted
            left[wanted] -= devices[job]
    for job in np.flatnonzero(kind < 0).tolist():
        for wanted in np.argsort(-shares[job], kind="stable").tolist():
            if speed[job, wanted] > 0 and devices[job] <= left[wanted]:
                kind[job] = wanted
                left[wanted] -= devices[job]
                break
    return kind
