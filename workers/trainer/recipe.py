"""From a configuration to a model, an optimizer and a scheduler; the same for a trial in any company."""

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuning.core.errors import TuningError, WorkloadError
from tuning.core.study.actions import Member
from tuning.core.workload import Workload
from workers.trainer.batches import Data, ReadConfig, matches, read_values
from workers.trainer.draws import Draws, record_draws
from workers.trainer.orders import Setting

WIDTH_FAMILIES = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw"}


# parameters without a rule keep the template's values, so that they are equal in every process
TEMPLATE_SEED = 0


@dataclass
class Template:
    """What all trials of one shape have in common: a module, and how its parameters were drawn.

    Its fused pair is compiled and checked once; containers of any size are made from it.
    """

    module: nn.Module
    draws: Draws | None
    pair: Any = None

    def weights(self, seed: int) -> dict[str, Tensor]:
        """Return freshly drawn parameters."""
        assert self.draws is not None
        return self.draws.draw(dict(self.module.named_parameters()), seed)

    def container(
        self,
        weights: Sequence[Mapping[str, Tensor]],
        seeds: Sequence[int],
        example_inputs: Any,
        device: torch.device,
    ) -> Any:
        """Return a fused module of one trial for each set of weights; a trial's noise begins at its seed."""
        fused = self._blank(len(seeds), example_inputs, device)
        tensors, shared = fused.tensors(), fused.blueprint.shared_names
        with torch.no_grad():
            for index, own in enumerate(weights):
                for name, tensor in own.items():
                    if name in tensors and name not in shared:
                        tensors[name][index].copy_(tensor)
        fused.streams.restore(list(seeds), type(fused.streams)(list(seeds), device).states())
        return fused

    def _blank(self, size: int, example_inputs: Any, device: torch.device) -> Any:
        from tuning.core import hydro

        if self.pair is None:
            module = copy.deepcopy(self.module).to(device)
            self.pair = hydro.fuse([module, module], example_inputs, seeds=[0, 1])
        whole, _ = hydro.merge([(self.pair, None)] * ((size + 1) // 2))
        if whole.trials > size:
            whole, _ = hydro.defuse(whole, None, list(range(size)))
        return whole


# Each with its workload, which is held so that no later one is taken for it, and with what it was made for.
_TEMPLATES: list[tuple[Workload, tuple[Any, ...], tuple[tuple[str, str], ...], Template]] = []


@dataclass
class Recipe:
    """How the models of one study are built. `scaling` 1 with `parametrized` is a target: full width, where
    every width rule is 1; it starts as the workload's own model does."""

    workload: Workload
    data: Data
    device: torch.device
    scaling: int
    parametrization: str
    parametrized: bool

    @classmethod
    def of(cls, workload: Workload, data: Data, setting: Setting, target: bool = False) -> "Recipe":
        """Return the recipe of a study's trials, or of its targets."""
        return cls(
            workload=workload,
            data=data,
            device=torch.device(setting.device),
            scaling=1 if target else setting.scaling,
            parametrization=setting.parametrization,
            parametrized=setting.scaling > 1,
        )

    def batch_size(self, config: Mapping[str, Any]) -> int:
        """Return the batch size of a configuration, or the workload's."""
        return int(config.get("batch_size", self.workload.batch_size))

    def optimizer_of(self, config: Mapping[str, Any]) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """Return the optimizer's class and arguments; WorkloadError where it is something else."""
        found = self.workload.optimizer(config)
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], type):
            raise WorkloadError(f"{self.workload.title()}: optimizer(config) must return (class, arguments)")
        return found

    def scheduler_of(self, config: Mapping[str, Any]) -> tuple[type[Any], dict[str, Any]] | None:
        """Return the scheduler class and arguments, or None."""
        found = self.workload.scheduler(config)
        if found is not None and (not isinstance(found, tuple) or len(found) != 2):
            raise WorkloadError(f"{self.workload.title()}: scheduler(config) must return (class, arguments)")
        return found

    def template(self, config: Mapping[str, Any]) -> Template:
        """Return what all trials of a configuration's shape have in common; built once per process."""
        family = self._family(config) if self.parametrized else None
        key = (self.scaling, self.parametrization, family, str(self.device))
        read = ReadConfig(config)
        for workload, known, values, template in _TEMPLATES:
            if workload is self.workload and known == key and matches(values, config):
                return template
        if family is None:
            template = Template(self._seeded(read, TEMPLATE_SEED), None)
        elif self.scaling == 1:
            template = Template(self._surrogate(read, family), None)
        else:
            template = Template(*record_draws(lambda: self._surrogate(read, family)))
        _TEMPLATES.append((self.workload, key, read_values(read, config), template))
        return template

    def model(self, config: Mapping[str, Any], seed: int) -> nn.Module:
        """Return a fresh model of a trial: the workload's own, or its surrogate, with weights from `seed`.

        A target has the weights that the workload's own model has with that seed.
        """
        if not self.parametrized:
            return self._seeded(config, seed).to(self.device)
        template = self.template(config)
        model = copy.deepcopy(template.module)
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        with torch.no_grad():
            for name, tensor in self._weights(template, config, seed).items():
                tensors[name].copy_(tensor)
        return model.to(self.device)

    def fused(self, members: Sequence[Member]) -> Any:
        """Return the members' models as one fused module, each with the weights it would have alone."""
        template = self.template(members[0].config)
        drawn: dict[str, Mapping[str, Tensor]] = {}  # equal members, as a profile has them, are drawn once
        weights = []
        for member in members:
            key = repr((member.seed, member.config))
            if key not in drawn:
                drawn[key] = self._weights(template, member.config, member.seed)
            weights.append(drawn[key])
        seeds = [member.seed for member in members]
        return template.container(weights, seeds, self.data.example_inputs(), self.device)

    def _weights(self, template: Template, config: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
        if template.draws is not None:
            return template.weights(seed)
        model = self._seeded(config, seed)
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def _seeded(self, config: Mapping[str, Any], seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._own(config)

    def _own(self, config: Mapping[str, Any]) -> nn.Module:
        model = self.workload.model(config)
        if not isinstance(model, nn.Module):
            raise WorkloadError(f"{self.workload.title()}: model(config) must return a torch.nn.Module")
        return model

    def _family(self, config: Mapping[str, Any]) -> str:
        optimizer, _ = self.optimizer_of(config)
        family = WIDTH_FAMILIES.get(optimizer.__name__)
        if family is None:
            raise TuningError(
                f"scaling needs SGD, Adam or AdamW, whose width rules are known, not {optimizer.__name__}; "
                "use --scaling 1 with this optimizer"
            )
        return family

    def _surrogate(self, config: Mapping[str, Any], family: str) -> nn.Module:
        from tuning.core import hydro

        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            # said once per study, when its facts are found
            warnings.simplefilter("ignore", hydro.HydroWarning)
            torch.manual_seed(TEMPLATE_SEED)
            surrogate: nn.Module = hydro.shrink(
                self._own(config),
                self.data.example_inputs(),
                scaling=self.scaling,
                optimizer=family,
                parametrization=self.parametrization,
            )
        return surrogate
