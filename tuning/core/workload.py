"""What people write to tune a model: a `Workload` class, or a training function of their own.

Torch-free, so that the web can describe workloads without loading PyTorch; a workload's own module should
import torch inside its methods for the same reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tuning.core.errors import Problem, SpecError, WorkloadError, escape
from tuning.core.space import Distribution, Space, declared_space

MODES = ("max", "min")

# hyperparameters that depend on model and data size together and so say nothing about another width
# (Hydro, section 4.4; weight decay transfers only while lr x weight decay is held)
NOT_TRANSFERABLE = ("dropout", "drop_rate", "dropout_rate", "drop_path", "label_smoothing")


@dataclass(frozen=True)
class DatasetCard:
    """Where a workload's data comes from."""

    name: str
    samples: int
    source: str
    licence: str

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain data."""
        return asdict(self)


class Workload:
    """One kind of model on one set of data, with a space of hyperparameters to search.

    Override `model`, `data`, `optimizer`, and where needed `loss`, `metrics`, `scheduler`. Nothing in them
    knows about other trials; `config` holds plain values of one trial.
    """

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    dataset: ClassVar[DatasetCard | None] = None
    space: ClassVar[Mapping[str, Any] | Space] = {}
    parameters: ClassVar[Mapping[str, Distribution]] = {}
    """Fixed settings a study may choose, each an attribute of the class with its default."""
    metric: str = "loss"
    mode: str = "min"
    epochs: int = 10
    batch_size: int = 64
    clip_norm: float | None = None
    """Gradients of a trial are clipped to this norm before each step; None is off."""
    not_transferable: ClassVar[tuple[str, ...]] = NOT_TRANSFERABLE

    def __init__(self, **parameters: Any) -> None:
        problems = []
        for name, value in parameters.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                detail = f"is no parameter of {self.title()}, which has {known}"
                problems.append(Problem(f"/{escape(name)}", detail))
            elif not self.parameters[name].contains(value):
                problems.append(Problem(f"/{escape(name)}", f"must be in {self.parameters[name].to_json()}"))
            else:
                setattr(self, name, value)
        if problems:
            raise SpecError(problems)

    @classmethod
    def title(cls) -> str:
        """Return the workload's name: its own, or the class's."""
        return cls.name or cls.__name__

    def model(self, config: Mapping[str, Any]) -> Any:
        """Return the full-width `torch.nn.Module`."""
        raise WorkloadError(f"{self.title()} has no method `model(config)`")

    def data(self, config: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return (train, validation): map-style datasets of (input, target), or (inputs, targets) tensors."""
        raise WorkloadError(f"{self.title()} has no method `data(config)`")

    def loss(self, output: Any, target: Any) -> Any:
        """Return the loss of one trial on a batch, a mean over its samples; cross-entropy by default."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(output, target)

    def metrics(self, output: Any, target: Any) -> dict[str, Any]:
        """Return further metrics of one trial on a batch, means over its samples; `loss` always exists."""
        return {}

    def summarize(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics of an epoch from their averages over all samples; perplexity, for example."""
        return metrics

    def optimizer(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return an optimizer class of torch and its keyword arguments."""
        raise WorkloadError(f"{self.title()} has no method `optimizer(config)`")

    def scheduler(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Return a learning-rate scheduler class and its keyword arguments; it steps once per epoch."""
        return None


class FunctionWorkload(Workload):
    """A training function of one's own, as `forebay.workload` makes it from `def train(config): ...`."""

    def __init__(self, function: Callable[[dict[str, Any]], None], **settings: Any) -> None:
        super().__init__()
        self.function = function
        self.__doc__ = function.__doc__
        self.label = settings.pop("name", None) or function.__name__
        for name, value in settings.items():
            setattr(self, name, value)

    def title(self) -> str:  # type: ignore[override]
        """Return the name that was given, or the function's."""
        return self.label

    def __call__(self, config: dict[str, Any]) -> None:
        self.function(config)


def workload(
    *,
    space: Mapping[str, Any] | Space,
    metric: str,
    mode: str = "max",
    epochs: int,
    batch_size: int = 64,
    name: str | None = None,
    description: str = "",
) -> Callable[[Callable[[dict[str, Any]], None]], FunctionWorkload]:
    """Turn a training function into a workload that `forebay tune` can run.

    The function gets `config`, wraps its model, loader, optimizer and scheduler with `forebay.prepare_*` and
    calls `forebay.report` after every epoch.
    """

    def decorate(function: Callable[[dict[str, Any]], None]) -> FunctionWorkload:
        return FunctionWorkload(
            function,
            space=space,
            metric=metric,
            mode=mode,
            epochs=epochs,
            batch_size=batch_size,
            name=name,
            description=description or (function.__doc__ or "").strip().split("\n")[0],
        )

    return decorate


def check_workload(workload: Workload) -> Space:
    """Return the workload's space; SpecError or WorkloadError names what is wrong with its declaration."""
    if workload.mode not in MODES:
        raise WorkloadError(f"{workload.title()}: mode must be max or min, got {workload.mode!r}")
    if not isinstance(workload.metric, str) or not workload.metric:
        raise WorkloadError(f"{workload.title()}: metric must be the name of a metric")
    for name in ("epochs", "batch_size"):
        value = getattr(workload, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise WorkloadError(f"{workload.title()}: {name} must be a whole number from 1, got {value!r}")
    return declared_space(workload.space)
