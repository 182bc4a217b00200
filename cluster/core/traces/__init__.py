"""Reading traces: jobs over time, nodes, pods, measured throughputs."""

from cluster.core.traces.columns import open_rows, rename_columns
from cluster.core.traces.jobs import read_jobs, repeated_ids
from cluster.core.traces.nodes import NodeSpec, even_nodes, read_nodes
from cluster.core.traces.throughputs import Throughputs, read_throughputs

__all__ = [
    "NodeSpec",
    "Throughputs",
    "even_nodes",
    "open_rows",
    "read_jobs",
    "read_nodes",
    "read_throughputs",
    "rename_columns",
    "repeated_ids",
]
