"""`forebay place` as a user and a script see it."""

import json

import pytest
from click.testing import CliRunner, Result

from forebay.cli.place import command

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,8000,4,T4\nb,8000,8000,4,V100\nc,4000,4000,0,\n"
USUAL = "p,1000,500,1,500,\nq,2000,1000,2,1000,\nr,1000,100,0,0,\ns,500,100,1,1000,\n"


@pytest.fixture
def place(tmp_path):
    def run(pods: str, *options: str, nodes: str = NODES) -> Result:
        (tmp_path / "pods.csv").write_text(PODS + pods)
        (tmp_path / "nodes.csv").write_text(nodes)
        files = ["--pods", str(tmp_path / "pods.csv"), "--nodes", str(tmp_path / "nodes.csv")]
        return CliRunner().invoke(command, [*files, *options])

    return run


@pytest.mark.parametrize("policy", ["random", "bestfit", "dotprod", "gpu-packing", "gpu-clustering", "fgd"])
def test_the_documented_keys_up_to_the_load(place, policy):
    result = place(USUAL, "--policy", policy, "--load", "1.1", "--seed", "4", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found["allocation"]) == ["0.9", "1.0", "1.1"]
    assert all(0 < share <= 1 for share in found["allocation"].values())
    assert isinstance(found["failed"], int)
    assert found["wall_s"] >= 0


def test_a_load_below_the_first_mark_still_has_a_final_share(place):
    found = json.loads(place(USUAL, "--policy", "fgd", "--load", "0.5", "--json").stdout)
    assert found["allocation"] == {}
    assert 0.5 <= found["final_allocation"] <= 0.75


def test_a_pod_restricted_to_a_model_fills_only_that(place):
    found = json.loads(place("p,1,1,1,1000,T4\n", "--policy", "bestfit", "--load", "1.3", "--json").stdout)
    assert found["final_allocation"] == 0.5


def test_for_people_the_marks_are_lines(place):
    result = place(USUAL, "--policy", "bestfit")
    assert result.exit_code == 0
    assert "90% arrived" in result.stdout


@pytest.mark.parametrize(
    ("pods", "options", "said"),
    [
        ("p,1,1,1,1500,\n", [], "row 1, gpu_milli"),
        ("p,x,1,1,1000,\n", [], "row 1, cpu_milli"),
        ("p,1,1,0,0,\n", [], "no pod asks for a device"),
        ("", [], "no pods"),
        (USUAL, ["--load", "nan"], "load:"),
        (USUAL, ["--load", "0"], "load:"),
        (USUAL, ["--seed", "-1"], "seed:"),
        (USUAL, ["--policy", "worst"], "policy: 'worst' is none of random"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(place, pods, options, said):
    result = place(pods, "--policy", "bestfit", "--json", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_nodes_without_devices_are_exit_code_2(place):
    result = place(USUAL, "--policy", "fgd", nodes="sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n")
    assert (result.exit_code, "no device" in result.stderr) == (2, True)
