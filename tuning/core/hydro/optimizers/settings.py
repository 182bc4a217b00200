"""The settings of one trial in the form in which PyTorch's learning-rate schedulers read and write them."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer


class TrialGroup(dict[str, Any]):
    """A ``param_groups`` entry that tells its owner when a scheduler or the user changes it."""

    def __init__(self, values: dict[str, Any], changed: Callable[[], None]) -> None:
        super().__init__(values)
        self._changed = changed

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._changed()

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        self._changed()


class TrialSettings(Optimizer):
    """What a scheduler of PyTorch takes for the optimizer of one trial: settings without parameters."""

    def __init__(self, group: TrialGroup) -> None:
        # Optimizer.__init__ wants parameters, and its first call imports torch._dynamo, which takes seconds.
        self.defaults = dict(group)
        self.param_groups = [group]
        self.state = {}  # type: ignore[assignment]
        # Schedulers warn when no step came before theirs; the steps are taken for all trials at once.
        self._opt_called = True

    @property
    def group(self) -> TrialGroup:
        return self.param_groups[0]  # type: ignore[return-value]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Steps are taken by the ``TrialOptimizer``."""

    def __repr__(self) -> str:
        return f"TrialSettings({dict(self.group)})"


# Schedulers wrap the step of an optimizer to count its calls, unless it says that this is done.
TrialSettings.step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
