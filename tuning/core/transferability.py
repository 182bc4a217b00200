"""Which hyperparameters a narrow surrogate can choose for the target, and why not.

Free of PyTorch, so that pages and the study validator use the same table.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Transfer(StrEnum):
    """How far a value found on a surrogate holds at target width."""

    YES = "transfers"
    UNDER_RULE = "transfers under a rule"
    NO = "does not transfer"


@dataclass(frozen=True)
class Verdict:
    """One hyperparameter's answer, with the reason shown beside the control."""

    name: str
    transfer: Transfer
    reason: str

    @property
    def allowed(self) -> bool:
        """Whether a surrogate search may include it."""
        return self.transfer is not Transfer.NO


_OPTIMIZATION = "it sets the dynamics of training, which width rules make independent of width"
_REGULARISATION = (
    "regularisation depends on the size of the model and of the data together: a narrow model needs less of "
    "it. Search it on the target, in a small second search, with the other values already found"
)
_STRUCTURE = (
    "it changes the model itself, so that the surrogate would no longer be a narrow copy of one target. "
    "Run one study per value"
)
_DECAY_HELD = (
    "the optimizer holds lr x weight_decay constant over widths, and under that rule decay transfers"
)
_DECAY_FREE = (
    "weight decay depends on the size of the model and of the data. It transfers only while "
    "lr x weight_decay is held constant over widths, which Hydro's SGD and AdamW do and this setting does not"
)
_DECAY_ADAM = (
    "Adam adds weight decay to the gradient and then normalises both, so that no width rule is exact for it. "
    "Use AdamW, or search it on the target"
)

_UNKNOWN = (
    "it is not in the table: it transfers if it concerns optimization alone, not the model or regularisation"
)

_GROUPS: dict[Transfer, dict[str, tuple[str, ...]]] = {
    Transfer.YES: {
        _OPTIMIZATION: (
            "lr", "learning_rate", "momentum", "nesterov", "beta1", "beta2", "betas", "eps", "gamma",
            "step_size", "warmup", "warmup_steps", "lr_schedule", "min_lr", "max_lr", "t_max", "eta_min",
            "milestones", "label_smoothing", "grad_clip", "clip_norm", "max_grad_norm", "batch_size",
        ),
    },
    Transfer.NO: {
        _REGULARISATION: (
            "dropout", "attention_dropout", "attn_dropout", "hidden_dropout", "embedding_dropout",
            "drop_path", "drop_path_rate", "stochastic_depth", "layerdrop", "mixup", "cutmix",
            "augmentation", "l1", "l2",
        ),
        _STRUCTURE: (
            "width", "hidden", "hidden_size", "hidden_dim", "d_model", "n_embd", "embed_dim", "channels",
            "depth", "layers", "n_layers", "num_layers", "heads", "n_heads", "num_heads", "activation",
            "norm",
        ),
    },
}  # fmt: skip

_TABLE: dict[str, Verdict] = {
    name: Verdict(name, transfer, reason)
    for transfer, groups in _GROUPS.items()
    for reason, names in groups.items()
    for name in names
}


def verdict(name: str, optimizer: str | None = None, *, decay_held: bool = True) -> Verdict:
    """Say whether the hyperparameter ``name`` transfers from a surrogate to the target.

    ``optimizer`` is ``sgd``, ``adam`` or ``adamw``; ``decay_held`` says that the optimizer keeps
    lr x weight_decay constant over widths, as ``hydro.optimizer`` does. A name that the table does not know
    transfers under the rule that it only concerns optimization.
    """
    key = name.lower().replace("-", "_")
    if key in ("weight_decay", "wd", "decay"):
        return _decay(name, optimizer, decay_held)
    known = _TABLE.get(key) or _TABLE.get(key.rsplit(".", 1)[-1])
    if known is not None:
        return Verdict(name, known.transfer, known.reason)
    return Verdict(name, Transfer.UNDER_RULE, _UNKNOWN)


def _decay(name: str, optimizer: str | None, held: bool) -> Verdict:
    if optimizer is not None and optimizer.lower() == "adam":
        return Verdict(name, Transfer.NO, _DECAY_ADAM)
    if not held:
        return Verdict(name, Transfer.NO, _DECAY_FREE)
    return Verdict(name, Transfer.UNDER_RULE, _DECAY_HELD)


def refused(names: Iterable[str], optimizer: str | None = None, *, decay_held: bool = True) -> list[Verdict]:
    """The hyperparameters of a space that a surrogate search must not include, each with its reason."""
    verdicts = (verdict(name, optimizer, decay_held=decay_held) for name in names)
    return [one for one in verdicts if not one.allowed]
