"""What stands behind `forebay.prepare_*`, `losses`, `backward` and `report` while a training function runs.

The prepared objects are bound at the model's first call, because only then the shape of its inputs is known:
the model becomes its surrogate, the trials are fused, the optimizer and the schedulers get their per-trial
values. When trials are stopped, the rest goes on behind the same objects.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tuning.core.errors import TuningError
from tuning.core.search import derive_seed
from tuning.core.study.actions import Member
from workers.trainer.orders import Stopped
from workers.trainer.recipe import WIDTH_FAMILIES


class Ended(BaseException):
    """Leaves the training function: its last epoch was reported, or nobody is left in it.

    No `Exception`, so that a function's own `except Exception` does not swallow it.
    """


Report = Callable[[int, dict[int, dict[str, float]], dict[int, str]], Sequence[int]]
"""Takes (epoch, metrics by trial, failures by trial); returns the trials that go on; may raise `Ended`."""


class PreparedModel(nn.Module):
    """The model of a training function: behind it stands a fused surrogate, one surrogate, or the model."""

    session: "Session"
    template: nn.Module

    def __init__(self, session: "Session", template: nn.Module) -> None:
        super().__init__()
        # plain attributes: neither is a submodule of the training function's model
        self.__dict__.update(session=session, template=template)
        self.inner: nn.Module | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.inner is None:
            self.session.bind(args, kwargs)
        assert self.inner is not None
        return self.inner(*args, **kwargs)


class PreparedOptimizer:
    """The optimizer of a training function."""

    def __init__(self, kind: type[torch.optim.Optimizer], arguments: dict[str, Any]) -> None:
        self.kind, self.arguments = kind, arguments
        self.inner: Any = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        if self.inner is not None:
            self.inner.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        """Make a step for every trial."""
        if self.inner is None:
            raise TuningError("optimizer.step() came before the model was called")
        self.inner.step()

    def __getattr__(self, name: str) -> Any:
        if name == "inner" or self.__dict__.get("inner") is None:
            raise AttributeError(f"{name} exists once the model was called")
        return getattr(self.inner, name)


class PreparedScheduler:
    """A learning-rate scheduler of a training function."""

    def __init__(self, kind: type[Any], arguments: dict[str, Any]) -> None:
        self.kind, self.arguments = kind, arguments
        self.inner: Any = None

    def step(self, *args: Any) -> None:
        """Move every trial's learning rate on."""
        if self.inner is None:
            raise TuningError("scheduler.step() came before the model was called")
        self.inner.step(*args)


class PreparedLoader:
    """A data loader whose order depends on the study's data seed and the pass only, on the run's device."""

    def __init__(self, session: "Session", loader: Any) -> None:
        self.session, self.loader = session, loader
        self.passes = 0

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def dataset(self) -> Any:
        """The loader's dataset."""
        return self.loader.dataset

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        seed = derive_seed(self.session.data_seed, "pass", self.passes)
        generator = torch.Generator().manual_seed(seed)
        self.loader.generator = generator
        if getattr(self.loader, "sampler", None) is not None:
            self.loader.sampler.generator = generator
        for batch in self.loader:
            yield tree_map(lambda v: v.to(self.session.device) if isinstance(v, Tensor) else v, batch)


class Session:
    """One run of a training function for one or several trials."""

    def __init__(
        self,
        members: Sequence[Member],
        report: Report,
        stopped: Callable[[], bool],
        *,
        data_seed: int,
        device: str,
        scaling: int,
        parametrization: str,
    ) -> None:
        self.members = list(members)
        self.report_to, self.stopped = report, stopped
        self.data_seed, self.device = data_seed, torch.device(device)
        self.scaling, self.parametrization = scaling, parametrization
        self.models: list[PreparedModel] = []
        self.optimizers: list[PreparedOptimizer] = []
        self.schedulers: list[PreparedScheduler] = []
        self.epoch = 0
        self.total: Tensor | None = None

    @property
    def fused(self) -> bool:
        """Whether several trials stand behind the prepared model."""
        return bool(self.models) and hasattr(self.models[0].inner, "trials")

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Build what stands behind the prepared objects, from the first inputs the model gets."""
        from workers.trainer.binding import bind_session

        if len(self.models) != 1 or len(self.optimizers) != 1:
            found = f"{len(self.models)} models and {len(self.optimizers)} optimizers"
            raise TuningError(
                f"a training function prepares one model and one optimizer; this one has {found}"
            )
        bind_session(self, args, dict(kwargs))

    def family(self) -> str:
        """Return whose width rules hold: sgd, adam or adamw; TuningError where there are none."""
        kind = self.optimizers[0].kind.__name__
        if kind not in WIDTH_FAMILIES:
            raise TuningError(
                f"scaling needs SGD, Adam or AdamW, whose width rules are known, not {kind}; "
                "use --scaling 1 with this optimizer"
            )
        return WIDTH_FAMILIES[kind]

    def losses(self, criterion: Callable[[Any, Any], Tensor], output: Any, target: Any) -> Tensor:
        """Return the loss of every trial, (F,); (1,) where one trial runs alone."""
        if self.fused:
            from tuning.core import hydro

            losses: Tensor = hydro.losses(criterion, output, target)
            return losses
        return criterion(output, target).reshape(1)

    def backward(self, losses: Tensor) -> None:
        """Backpropagate the sum over trials: each trains exactly as alone."""
        if self.stopped():
            raise Stopped
        losses.sum().backward()
        seen = losses.detach().reshape(-1)
        self.total = seen if self.total is None or self.total.shape != seen.shape else self.total + seen

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Report an epoch; leaves the training function where it is over for all its trials."""
        self.epoch += 1
        rows = self._rows(metrics)
        failures = self._failures()
        rows = {trial: row for trial, row in rows.items() if trial not in failures}
        kept = self.report_to(self.epoch, rows, failures)
        self.total = None
        if not kept:
            raise Ended
        if len(kept) < len(self.members):
            self._keep(list(kept))

    def _rows(self, metrics: Mapping[str, Any]) -> dict[int, dict[str, float]]:
        if not isinstance(metrics, Mapping):
            raise TuningError('report takes a dictionary of metrics, for example {"accuracy": accuracy}')
        rows: dict[int, dict[str, float]] = {member.trial: {} for member in self.members}
        for name, value in metrics.items():
            for member, number in zip(self.members, self._each(name, value), strict=True):
                rows[member.trial][str(name)] = number
        return rows

    def _each(self, name: Any, value: Any) -> list[float]:
        values = value.detach().reshape(-1).tolist() if isinstance(value, Tensor) else value
        if not isinstance(values, list | tuple):
            values = [values]
        if len(values) == 1:
            values = list(values) * len(self.members)
        if len(values) != len(self.members):
            raise TuningError(
                f"metric `{name}` has {len(values)} values; it must have one, or one for each of the "
                f"{len(self.members)} trials"
            )
        return [float(number) for number in values]

    def _failures(self) -> dict[int, str]:
        if self.total is None:
            return {}
        losses = self.total.tolist()
        if len(losses) != len(self.members):
            return {}
        reason = f"non-finite loss at epoch {self.epoch}"
        pairs = zip(self.members, losses, strict=True)
        return {member.trial: reason for member, loss in pairs if not math.isfinite(loss)}

    def _keep(self, trials: list[int]) -> None:
        """Leave the other trials behind; the function goes on with the same objects."""
        from tuning.core import hydro

        indexes = [index for index, member in enumerate(self.members) if member.trial in trials]
        model, optimizer = self.models[0], self.optimizers[0]
        model.inner, optimizer.inner = hydro.defuse(model.inner, optimizer.inner, indexes)
        for prepared, inner in zip(self.schedulers, optimizer.inner.schedulers, strict=True):
            prepared.inner = inner
        self.members = [self.members[index] for index in indexes]


_CURRENT: list[Session] = []


def current() -> Session | None:
    """Return the session of the training function that runs in this process, if one does."""
    return _CURRENT[-1] if _CURRENT else None


class running:
    """`with running(session): function(config)`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __enter__(self) -> Session:
        _CURRENT.append(self.session)
        return self.session

    def __exit__(self, *exc: object) -> None:
        _CURRENT.remove(self.session)
