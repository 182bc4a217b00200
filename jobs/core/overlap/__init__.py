"""Communication under computation on a captured graph: simulate, bound, schedule and explain (Helix)."""

from jobs.core.overlap.bounds import bounds
from jobs.core.overlap.documents import plan_document
from jobs.core.overlap.errors import MalformedGraph, OverBudget
from jobs.core.overlap.graph import Graph, Kind, Node
from jobs.core.overlap.memory import memory_profile
from jobs.core.overlap.planner import POLICIES, Plan, make_plan
from jobs.core.overlap.reading import read_graph
from jobs.core.overlap.simulator import simulate
from jobs.core.overlap.trace import chrome_trace

__all__ = [
    "POLICIES",
    "Graph",
    "Kind",
    "MalformedGraph",
    "Node",
    "OverBudget",
    "Plan",
    "bounds",
    "chrome_trace",
    "make_plan",
    "memory_profile",
    "plan_document",
    "read_graph",
    "simulate",
]
