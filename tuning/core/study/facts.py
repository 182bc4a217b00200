"""What a study knows about its workload before it starts: found by `workers.trainer`, plain data here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuning.core.space import Space, parse_space


@dataclass(frozen=True)
class StudyFacts:
    """The workload as the study sees it.

    `space` already contains the study's own entries. `static_names` are the hyperparameters that change the
    shape or the kind of an operator (those the workload's `model`, `data` or `loss` read, and choices that
    are no numbers), so trials that differ in one of them never share a container. `resumable` is false for
    training functions: they cannot continue from a checkpoint. `target_space` holds the hyperparameters that
    do not transfer, where they are searched on the target: `space` has one value of each. `undivided` says
    why a target cannot be trained on several devices; None where it can.
    """

    metric: str
    mode: str
    epochs: int
    space: Space
    samples: int = 1024
    batch_size: int = 64
    static_names: tuple[str, ...] = ()
    resumable: bool = True
    fusable: bool = True
    target_space: Space | None = None
    undivided: str | None = "it is not known whether its batches can be divided"

    def batch_size_of(self, config: Mapping[str, Any]) -> int:
        """Return the batch size of a configuration: its own or the workload's."""
        return int(config.get("batch_size", self.batch_size))

    def shape_of(self, config: Mapping[str, Any]) -> str:
        """Return the key under which trials may be fused: equal keys mean equal operator shapes."""
        static = {name: config[name] for name in self.static_names if name in config and name != "batch_size"}
        if any(parameter.conditions for parameter in self.space.parameters):
            static["parameters"] = sorted(config)
        key = {"batch_size": self.batch_size_of(config), **static}
        return json.dumps(key, sort_keys=True, ensure_ascii=False)

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        return {
            "metric": self.metric,
            "mode": self.mode,
            "epochs": self.epochs,
            "space": self.space.to_json(),
            "samples": self.samples,
            "batch_size": self.batch_size,
            "static_names": list(self.static_names),
            "resumable": self.resumable,
            "fusable": self.fusable,
            "target_space": self.target_space.to_json() if self.target_space else None,
            "undivided": self.undivided,
        }


def facts_from_json(document: Mapping[str, Any]) -> StudyFacts:
    """Return the facts that `StudyFacts.to_json` wrote."""
    values = dict(document)
    values["space"] = parse_space(values["space"])
    target_space = values.get("target_space")
    values["target_space"] = parse_space(target_space) if target_space else None
    values["static_names"] = tuple(values["static_names"])
    return StudyFacts(**values)
