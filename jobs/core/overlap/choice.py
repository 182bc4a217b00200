"""How many tiles, by simulation: all are tried, the fastest that fits is taken, the others are told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.core.overlap.decisions import Decision
from jobs.core.overlap.errors import OverBudget
from jobs.core.overlap.graph import Graph
from jobs.core.overlap.planner import Plan, make_plan
from jobs.core.overlap.search import LABEL_LIMIT
from jobs.core.overlap.telling import bytes_told, seconds_told

# On one tile there is nothing to take turns with; what may move there moves under `bucketed`.
QUICK_POLICY = "round-robin"
_SEARCHED = ("exact", "bucketed")


@dataclass(frozen=True)
class Choice:
    """The plan, and what each number of tiles would give by round robin.

    Attributes:
        alternatives: rows with tiles, makespan, peak_bytes; makespan is null where no plan fits the budget.
    """

    tiles: int
    plan: Plan
    alternatives: list[dict[str, Any]]
    decisions: list[Decision]


def choose(
    graphs: Mapping[int, Graph], policy: str, tiles: int | None = None, label_limit: int = LABEL_LIMIT
) -> Choice:
    """Choose the number of tiles, and plan.

    Args:
        graphs: the program in 1, 2, ... tiles, all with the same budget.
        tiles: a number that was asked for; None for the fastest.

    Raises:
        OverBudget: no number of tiles that was allowed has a plan within the budget.
    """
    rows = [_row(number, graph) for number, graph in sorted(graphs.items())]
    fitting = [row for row in rows if row["makespan"] is not None]
    wanted = tiles if tiles in graphs else None
    if wanted is None:
        # Equal makespans: fewer tiles, less that can go wrong.
        fitting.sort(key=lambda row: (row["makespan"], row["tiles"]))
        candidates = [row["tiles"] for row in fitting[:1]] or sorted(graphs, reverse=True)
    else:
        candidates = [wanted]
    chosen, plan = _first_plan(graphs, candidates, policy, label_limit)
    if wanted is None and policy in _SEARCHED:
        # Rows are quick answers: a search may turn the order between tiles and the whole round.
        rivals = [row["tiles"] for row in fitting if (row["tiles"] == 1) != (chosen == 1)]
        rival = _plan_or_none(graphs[rivals[0]], policy, label_limit) if rivals else None
        if rival is not None and _before(rival, rivals[0], plan, chosen):
            chosen, plan = rivals[0], rival
    return Choice(chosen, plan, rows, _explained(rows, chosen, plan, wanted))


def _first_plan(
    graphs: Mapping[int, Graph], candidates: list[int], policy: str, label_limit: int
) -> tuple[int, Plan]:
    error: OverBudget | None = None
    for number in candidates:
        try:
            return number, make_plan(graphs[number], policy, label_limit)
        except OverBudget as found:
            if error is None or found.smallest_peak_bytes < error.smallest_peak_bytes:
                error = found
    assert error is not None
    raise error


def _before(one: Plan, tiles: int, other: Plan, others_tiles: int) -> bool:
    return (one.chosen.makespan_s, tiles) < (other.chosen.makespan_s, others_tiles)


def _plan_or_none(graph: Graph, policy: str, label_limit: int) -> Plan | None:
    try:
        return make_plan(graph, policy, label_limit)
    except OverBudget:
        return None


def _row(number: int, graph: Graph) -> dict[str, Any]:
    try:
        plan = make_plan(graph, QUICK_POLICY if number > 1 else "bucketed", 0)
    except OverBudget as error:
        return {"tiles": number, "makespan": None, "peak_bytes": error.smallest_peak_bytes}
    return {"tiles": number, "makespan": plan.chosen.makespan_s, "peak_bytes": plan.chosen.peak_bytes}


def _explained(rows: list[dict[str, Any]], chosen: int, plan: Plan, wanted: int | None) -> list[Decision]:
    found: list[Decision] = []
    mine = plan.chosen.makespan_s
    why = "as asked for" if wanted is not None else "the fastest that fits"
    found.append({"node": None, "action": f"{chosen} tiles" if chosen > 1 else "not tiled", "reason": why})
    for row in rows:
        if row["tiles"] == chosen:
            continue
        name = f"{row['tiles']} tiles" if row["tiles"] > 1 else "untiled"
        if row["makespan"] is None:
            reason = f"no plan fits into the budget; the smallest peak is {bytes_told(row['peak_bytes'])}"
        elif row["makespan"] < mine:
            reason = f"would be faster: {seconds_told(row['makespan'])} against {seconds_told(mine)}"
        else:
            took = f"{seconds_told(row['makespan'])} against {seconds_told(mine)}"
            reason = f"{took}, peak {bytes_told(row['peak_bytes'])}"
        found.append({"node": None, "action": f"considered {name}", "reason": reason})
    return found
