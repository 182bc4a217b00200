"""Pods and nodes with several resources."""

import pytest

from cluster.core.errors import TraceError
from cluster.core.traces.pods import read_pod_nodes, read_pods

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def test_a_pod_without_devices_has_no_share_of_one(tmp_path):
    path = tmp_path / "pods.csv"
    path.write_text(PODS + "a,1000,10,0,500,\nb,1000,10,1,500,V100|T4\n")
    pods = read_pods(path)
    assert pods.milli.tolist() == [0, 500]
    assert pods.models == [frozenset(), frozenset({"V100", "T4"})]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a,1,1,1,0,", "row 1, gpu_milli"),
        ("a,1,1,1,1001,", "row 1, gpu_milli"),
        ("a,1,1,2,500,", "row 1, gpu_milli"),
        ("a,1,1,-1,1000,", "row 1, num_gpu"),
        ("a,nan,1,1,1000,", "row 1, cpu_milli"),
    ],
)
def test_a_share_that_cannot_be_is_named(tmp_path, row, said):
    path = tmp_path / "pods.csv"
    path.write_text(PODS + row + "\n")
    with pytest.raises(TraceError, match=said):
        read_pods(path)


@pytest.mark.parametrize("rows", ["a,1,1,0,\n", "a,1,1,8,T4\na,1,1,8,T4\n", "a,1,1,1000000,T4\n"])
def test_nodes_without_devices_doubled_or_endless_are_refused(tmp_path, rows):
    path = tmp_path / "nodes.csv"
    path.write_text(NODES + rows)
    with pytest.raises(TraceError):
        read_pod_nodes(path)
