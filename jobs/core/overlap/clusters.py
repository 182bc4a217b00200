"""What a cluster can do, as data: published figures of GPUs and links, and profiles of one's own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from jobs.core.overlap.errors import UnknownCluster


@dataclass(frozen=True)
class Cluster:
    """One kind of device and its links.

    Attributes:
        flops_per_s: dense bf16 peak; `gemm_efficiency` of it is what a large GEMM reaches.
        memory_bytes_per_s: device memory; `memory_efficiency` of it is what a streaming kernel reaches.
        multiprocessors: blocks of a GEMM that run at once.
        launch_s: host cost of a kernel.
        node_bytes_per_s, network_bytes_per_s: bus bandwidth per rank and direction inside and between nodes.
        node_step_s, network_step_s: latency of one step of a collective.
    """

    name: str
    flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float
    multiprocessors: int
    node_bytes_per_s: float
    network_bytes_per_s: float
    devices_per_node: int = 8
    gemm_efficiency: float = 0.7
    memory_efficiency: float = 0.85
    attention_efficiency: float = 0.5
    launch_s: float = 3e-6
    node_step_s: float = 3.4e-6
    network_step_s: float = 14e-6


# Spec pages for the devices; in-node bus bandwidth and step latencies as Inductor assumes them for NCCL.
A100_HDR = Cluster("a100", 312e12, 2.04e12, 80e9, 108, 240e9, 25e9)
H100_NDR = Cluster("h100", 989e12, 3.35e12, 80e9, 132, 370e9, 50e9)
H200_NDR = Cluster("h200", 989e12, 4.8e12, 141e9, 132, 370e9, 50e9)

CLUSTERS = {cluster.name: cluster for cluster in (A100_HDR, H100_NDR, H200_NDR)}

# Bytes per second and rank of an InfiniBand port of each generation.
NETWORKS = {"hdr": 25e9, "ndr": 50e9}
_NAME = re.compile(r"(?P<device>[a-z0-9]+?)(?:x(?P<count>[1-9][0-9]?))?(?:-(?P<network>[a-z]+))?")


@dataclass(frozen=True)
class Placement:
    """A cluster and whether a built-in program spreads over two of its nodes or stays in one."""

    cluster: Cluster
    crosses_nodes: bool


def read_cluster(value: str | Mapping[str, Any]) -> Placement:
    """A cluster by name or as an object of one's own.

    `a100x8` is one node of eight devices; `a100x8-hdr` several such nodes joined by HDR InfiniBand, and a
    built-in program then spreads over two of them. An object has the fields of `Cluster`; those left out are
    those of the profile that its `like` names.

    Raises:
        UnknownCluster: with the field and the rule.
    """
    if isinstance(value, str):
        return _named(value)
    if not isinstance(value, Mapping):
        raise UnknownCluster("cluster has to be a name or an object")
    like = value.get("like", "a100x8")
    if not isinstance(like, str):
        raise UnknownCluster("cluster.like has to be a name")
    placement = _named(like)
    known = {field.name for field in fields(Cluster)}
    changes: dict[str, Any] = {}
    for key, given in value.items():
        if key in ("like", "name"):
            continue
        if key not in known:
            raise UnknownCluster(f"cluster.{key} is no field of a cluster: {', '.join(sorted(known))}")
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e30:
            raise UnknownCluster(f"cluster.{key} has to be a positive number")
        if key in ("devices_per_node", "multiprocessors") and not isinstance(given, int):
            raise UnknownCluster(f"cluster.{key} has to be a whole number")
        changes[key] = given
    name = str(value.get("name", f"like {like}"))[:100]
    return replace(placement, cluster=replace(placement.cluster, name=name, **changes))


def _named(name: str) -> Placement:
    match = _NAME.fullmatch(name.lower())
    cluster = CLUSTERS.get(match["device"]) if match else None
    if match is None or cluster is None or (match["network"] or "hdr") not in NETWORKS:
        raise UnknownCluster(
            f"cluster {name!r} is not known: one of {', '.join(CLUSTERS)}, then x and the devices of a node,"
            f" then -hdr or -ndr for several nodes, for example a100x8 or h100x8-ndr"
        )
    cluster = replace(cluster, name=name.lower(), devices_per_node=int(match["count"] or 8))
    if match["network"]:
        cluster = replace(cluster, network_bytes_per_s=NETWORKS[match["network"]])
    return Placement(cluster, crosses_nodes=match["network"] is not None)
