"""Which replicas the nodes can form together: a linear program for prices, an integer one for a plan.

Variables are how often each replica is formed, how many nodes of each kind cut which run of their devices
into a group (a flow along the devices, so that runs never overlap), and how many groups serve as one of a
weaker type. The objective is the number of micro-batches run within the time the replicas are measured for.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array, csr_array, hstack, vstack

from jobs.core.layout.drafts import Group
from jobs.core.layout.shapes import Shape
from jobs.core.layout.supply import Supply

NODE_LIMIT = 2_000  # of one integer program: a limit on its seconds would make plans depend on the machine
LEAST_SECONDS = 0.1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Prices(NamedTuple):
    """What the linear program says: micro-batches run, those one more group of a type or replica is worth.

    `replicas` is how many there are, which need not be whole.
    """

    value: float
    groups: Floats
    replica: float
    replicas: float


class Packed(NamedTuple):
    """The replicas of a plan, by their place in the list of shapes, and the groups there are for them."""

    chosen: list[int]
    groups: dict[int, list[Group]]


class _Run(NamedTuple):
    """Devices of nodes of one kind that form a group of a type, or the one that stays idle (type -1)."""

    kind: int
    first: int
    end: int
    number: int


class Packing:
    """The nodes of a cluster, and how many replicas they shall form; None: as many as pays."""

    def __init__(self, supply: Supply, replicas: int | None) -> None:
        self.supply = supply
        self.replicas = replicas
        self.runs = [
            run
            for kind, node in enumerate(supply.kinds)
            for run in [
                *(_Run(kind, *run) for run in supply.runs[kind]),
                *(_Run(kind, at, at + 1, -1) for at in range(len(node.devices))),
            ]
        ]
        self.downs = _downgrades(supply)
        self.flow, self.nodes = self._flow()
        self.offer = self._offer()

    def _flow(self) -> tuple[csr_array, Floats]:
        starts = np.cumsum([0] + [len(node.devices) + 1 for node in self.supply.kinds])
        first = np.array([starts[run.kind] + run.first for run in self.runs])
        end = np.array([starts[run.kind] + run.end for run in self.runs])
        column = np.arange(len(self.runs))
        signs = np.repeat([1.0, -1.0], len(self.runs))
        shape = (int(starts[-1]), len(self.runs))
        flow = coo_array((signs, (np.concatenate([first, end]), np.tile(column, 2))), shape=shape)
        nodes = np.zeros(shape[0])
        nodes[starts[:-1]] = self.supply.numbers
        nodes[starts[1:] - 1] = [-number for number in self.supply.numbers]
        return flow.tocsr(), nodes

    def _offer(self) -> csr_array:
        """Groups of each type that runs and downgrades bring; shape (types, runs + downgrades)."""
        rows, columns, values = [], [], []
        for column, run in enumerate(self.runs):
            if run.number >= 0:
                rows.append(run.number)
                columns.append(column)
                values.append(1.0)
        for column, (weak, strong) in enumerate(self.downs, len(self.runs)):
            rows += [weak, strong]
            columns += [column, column]
            values += [1.0, -1.0]
        shape = (len(self.supply.types), len(self.runs) + len(self.downs))
        return coo_array((values, (rows, columns)), shape=shape).tocsr()

    def _system(self, shapes: Sequence[Shape]) -> tuple[csr_array, csr_array, Floats]:
        """Groups used less groups offered, at most 0; and what must be equal, with its right-hand side."""
        used = [(number, column) for column, shape in enumerate(shapes) for number, _ in shape]
        rows, columns = np.array(used).T
        size = (len(self.supply.types), len(shapes))
        use = coo_array((np.ones(len(used)), (rows, columns)), shape=size)
        idle = csr_array((self.flow.shape[0], len(self.downs)))
        equal = hstack([csr_array((self.flow.shape[0], len(shapes))), self.flow, idle]).tocsr()
        there = self.nodes
        if self.replicas is not None:
            count = np.concatenate([np.ones(len(shapes)), np.zeros(self.offer.shape[1])])[None]
            equal = vstack([equal, csr_array(count)]).tocsr()
            there = np.append(there, float(self.replicas))
        return hstack([use, -self.offer]).tocsr(), equal, there

    def prices(self, shapes: Sequence[Shape], run: Sequence[int]) -> Prices | None:
        """The linear program over replicas that run so many micro-batches each; None: too few groups."""
        use, equal, there = self._system(shapes)
        cost = -np.concatenate([np.array(run, dtype=float), np.zeros(self.offer.shape[1])])
        zeros = np.zeros(use.shape[0])
        found = linprog(cost, A_ub=use, b_ub=zeros, A_eq=equal, b_eq=there, method="highs")
        if found.x is None:
            return None
        groups = self.supply.consistent(np.maximum(-found.ineqlin.marginals, 0.0))
        replica = 0.0 if self.replicas is None else -float(found.eqlin.marginals[-1])
        return Prices(-float(found.fun), groups, replica, float(found.x[: len(shapes)].sum()))

    def choose(
        self, shapes: Sequence[Shape], run: Sequence[int], wanted: int, seconds: float
    ) -> Packed | None:
        """Replicas that together run what is wanted, as far as the solver finds any in time."""
        use, equal, there = self._system(shapes)
        more = np.zeros(self.offer.shape[1])
        runs = np.concatenate([np.array(run, dtype=float), more])
        found = milp(
            -runs,
            constraints=[
                LinearConstraint(use, -np.inf, np.zeros(use.shape[0])),
                LinearConstraint(equal, there, there),
                LinearConstraint(csr_array(runs[None]), wanted, np.inf),
            ],
            integrality=np.ones(len(runs)),
            bounds=Bounds(0, np.inf),
            options={"time_limit": max(seconds, LEAST_SECONDS), "node_limit": NODE_LIMIT},
        )
        if found.x is None:
            return None
        values = np.round(found.x).astype(int)
        chosen = [column for column in range(len(shapes)) for _ in range(values[column])]
        return Packed(chosen, self._groups(values[len(shapes) :]))

    def _groups(self, values: Ints) -> dict[int, list[Group]]:
        """Concrete groups by the type they serve as."""
        found: dict[int, list[Group]] = defaultdict(list)
        left = {run: int(value) for run, value in zip(self.runs, values, strict=False)}
        for kind, nodes in enumerate(self.supply.nodes):
            starting: dict[int, list[_Run]] = defaultdict(list)
            for run in self.runs:
                if run.kind == kind and left[run]:
                    starting[run.first].append(run)
            for node in nodes:
                at = 0
                while at < len(node.devices):
                    run = next(run for run in starting[at] if left[run])
                    left[run] -= 1
                    at = run.end
                    if run.number >= 0:
                        members = node.devices[run.first : run.end]
                        found[run.number].append(Group(self.supply.types[run.number], members))
        # The strongest types first, so that what one is given is there when it gives.
        for (weak, strong), count in sorted(
            zip(self.downs, values[len(self.runs) :].tolist(), strict=True), key=lambda row: -row[0][1]
        ):
            found[weak] += [found[strong].pop() for _ in range(count)]
        return found


def _downgrades(supply: Supply) -> list[tuple[int, int]]:
    """Pairs (weaker, stronger) of types with none between; types are sorted, so the stronger comes later."""
    better = supply.at_least & ~np.eye(len(supply.types), dtype=bool)
    between = (better.astype(int) @ better.astype(int)) > 0
    return [(int(weak), int(strong)) for weak, strong in zip(*np.nonzero(better & ~between), strict=True)]
