"""`forebay bench fidelity`: the figures are those of the pairs that it measured."""

import json

import pytest
from click.testing import CliRunner

from forebay.cli.bench.fidelity import command
from tuning.core.transfer import fidelity


def test_the_figures_follow_from_the_pairs() -> None:
    arguments = ["--quick", "--workload", "digits-mlp", "--configurations", "4", "--epochs", "1", "--json"]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    (result,) = document["results"]
    pairs = {pair["trial"]: (pair["surrogate"], pair["full"]) for pair in result["pairs"]}
    assert sorted(pairs) == [0, 1, 2, 3]
    surrogate, full = ({trial: pair[side] for trial, pair in pairs.items()} for side in (0, 1))
    again = fidelity(surrogate, full, "max", 3)
    assert (result["spearman"], result["overlap"]) == (again.spearman, again.overlap)
    assert result["regret_top_k"] == pytest.approx(again.regret_top_k)
    low, high = result["full_range"]
    assert low < high <= 1
    assert document["machine"]["cores"]


@pytest.mark.parametrize("arguments", [["--workload", "nope"], ["--configurations", "2"], ["--scaling", "1"]])
def test_what_cannot_be_compared_is_bad_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2
