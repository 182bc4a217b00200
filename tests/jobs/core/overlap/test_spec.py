"""The spec of an overlap job, and names of clusters."""

import pytest

from jobs.core.errors import InvalidSpec
from jobs.core.overlap.clusters import CLUSTERS, read_cluster
from jobs.core.overlap.errors import UnknownCluster
from jobs.core.overlap.spec import check_spec


def test_only_the_program_is_required():
    assert check_spec({"program": "tp-transformer"}) == {
        "program": "tp-transformer", "tiles": "auto", "cluster": "a100x8", "policy": "bucketed",
        "memory_budget": None, "slowdown": {"compute": 0.0, "comm": 0.0},
    }  # fmt: skip


def test_a_size_of_a_built_in_program_is_kept_as_it_was_given():
    assert check_spec({"program": "tp-transformer", "size": {"width": 64}})["size"] == {"width": 64}


@pytest.mark.parametrize(
    ("spec", "pointers"),
    [
        ({}, ["/spec/program"]),
        ({"program": "no such"}, ["/spec/program"]),
        ({"program": "os.path:join", "tiles": True}, ["/spec/tiles"]),
        ({"program": "a:b", "tiles": 65, "policy": ["exact"]}, ["/spec/tiles", "/spec/policy"]),
        ({"program": "a:b", "cluster": {"flops_per_s": -1}}, ["/spec/cluster"]),
        ({"program": "a:b", "memory_budget": float("nan")}, ["/spec/memory_budget"]),
        ({"program": "a:b", "slowdown": {"compute": "x"}}, ["/spec/slowdown"]),
        ({"program": "a:b", "a/b": 1}, ["/spec/a~1b"]),
        ({"program": "a:b", "size": {"width": 8}}, ["/spec/size"]),
        ({"program": "tp-transformer", "size": {"width": 0, "depth": 2}}, ["/spec/size", "/spec/size"]),
        ({"program": "tp-transformer", "size": [8]}, ["/spec/size"]),
    ],
)
def test_each_fault_has_its_pointer(spec, pointers):
    with pytest.raises(InvalidSpec) as refused:
        check_spec(spec)
    assert [pointer for pointer, _ in refused.value.faults] == pointers


@pytest.mark.parametrize(
    ("name", "devices", "network", "crosses"),
    [
        ("a100x8", 8, 25e9, False),
        ("a100x8-hdr", 8, 25e9, True),
        ("H100x4-NDR", 4, 50e9, True),
        ("h200", 8, 50e9, False),
    ],
)
def test_a_cluster_is_a_device_a_number_and_a_network(name, devices, network, crosses):
    placement = read_cluster(name)
    assert placement.cluster.devices_per_node == devices
    assert placement.cluster.network_bytes_per_s == network
    assert placement.crosses_nodes is crosses


def test_a_cluster_of_ones_own_changes_a_known_one():
    cluster = read_cluster({"like": "h100x8", "name": "ours", "network_bytes_per_s": 1e9}).cluster
    assert (cluster.name, cluster.network_bytes_per_s) == ("ours", 1e9)
    assert cluster.flops_per_s == CLUSTERS["h100"].flops_per_s


@pytest.mark.parametrize(
    "value", ["tpu", "a100x0", "a100x8-wifi", 3, {"like": 1}, {"speed": 1}, {"flops_per_s": True}]
)
def test_an_unknown_cluster_is_named(value):
    with pytest.raises(UnknownCluster, match="cluster"):
        read_cluster(value)
