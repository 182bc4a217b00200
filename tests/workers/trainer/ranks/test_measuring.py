"""What the documentation's figures of data-parallel targets were measured with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from workers.trainer.ranks.measuring import measure

CONFIG = {"lr": 0.05, "momentum": 0.9, "batch_size": 128, "gamma": 0.5}


def test_epochs_are_measured_on_every_rank(tmp_path: Path, order: Any) -> None:
    asked = order(tmp_path, CONFIG)
    asked = replace(asked, setting=replace(asked.setting, workload="digits-mlp"))
    for ranks in (1, 2):
        found = measure(asked, ranks)
        assert (found["ranks"], len(found["processor_s"])) == (ranks, ranks)
        assert found["wall_s"] > 0
