"""What is known about compiling one graph: from earlier runs of the study, and from this machine."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tuning.core.containers import expected_compile_s
from tuning.core.study.compiling import same_graph
from workers.trainer.compiling.inductor import found_kernels
from workers.trainer.compiling.remembered import remember_s, remembered_s

_SAME_KIND = ("device", "torch")


def kind_of(device: torch.device) -> dict[str, Any]:
    """Return what a measurement depends on besides the graph."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"device": name, "torch": str(torch.__version__), "threads": torch.get_num_threads()}


class Findings:
    """The decisions of earlier runs, looked at from one graph on one kind of device."""

    def __init__(self, known: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
        self.about = about
        measured = [one for one in known if one.get("compile_s") is not None]
        tried = [one for one in measured if one["outcome"] != "not tried"]
        self.same = [one for one in tried if same_graph(one, about)]
        kind = [one for one in tried if all(one[name] == about[name] for name in _SAME_KIND)]
        self.others = [float(one["compile_s"]) for one in kind if one not in self.same]

    @property
    def verdict(self) -> Mapping[str, Any] | None:
        """The last decision about this graph that rests on a measurement or a failure."""
        return self.same[-1] if self.same else None

    @property
    def share(self) -> float:
        """What a compiled step takes of an eager one, as measured."""
        last = self.same[-1]
        return float(last["compiled_step_s"] / last["eager_step_s"])

    def expected_s(self) -> float:
        """Return the seconds that compiling will plausibly take."""
        same = [float(one["compile_s"]) for one in self.same]
        remembered = remembered_s(self.about["device"], self.about["torch"])
        return expected_compile_s(same, self.others, remembered, "torch._inductor.compile_fx" in sys.modules)

    def keep(self, compile_s: float) -> None:
        """Remember what compiling took, for other studies on this machine; not where kernels were at hand."""
        if not found_kernels():
            remember_s(self.about["device"], self.about["torch"], compile_s)
