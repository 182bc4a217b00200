"""Small programs and a study of one in this process."""

import pytest
import torch
import torch.distributed._functional_collectives as functional

from jobs.core.overlap.program import Program


@pytest.fixture
def study():
    from workers.trainer.overlap.study import Request, run_study

    def run(program: Program, **request):
        request = {"tiles": 2, "policy": "round-robin", **request}
        return run_study(Request("here", **request), program)

    return run


@pytest.fixture
def column_row():
    """A column- and a row-parallel product with an all-reduce, and whatever a case puts between."""

    def make(between=torch.relu, *, batch=4, train=False, params=None, inputs=None, batch_dims=None, ranks=2):
        def step(weights, given):
            hidden = between(given["x"] @ weights["up"])
            reduced = functional.all_reduce(hidden @ weights["down"], "sum", "tp")
            result = reduced + given["x"]
            return result.pow(2).mean() if train else result

        given = {"x": (batch, 8, 16), **(inputs or {})}
        weights = {"up": (16, 32), "down": (32, 16), **(params or {})}
        dims = batch_dims if batch_dims is not None else {"x": 0}
        return Program(step, weights, given, {"tp": list(range(ranks))}, dims, train=train)

    return make
