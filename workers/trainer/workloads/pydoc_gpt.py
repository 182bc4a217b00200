"""pydoc-gpt: a small character transformer on the language reference inside Python's standard library."""

import math
from collections.abc import Mapping
from typing import Any

from tuning.core.space import choice, loguniform, randint, uniform
from tuning.core.workload import DatasetCard, Workload

CONTEXT = 64  # characters a sample has
VALIDATION_SHARE = 0.1
TRAIN_SAMPLES = 1024
VALIDATION_SAMPLES = 128


class PydocGpt(Workload):
    """A decoder-only character transformer (width 256, two blocks), trained by AdamW; perplexity."""

    name = "pydoc-gpt"
    description = "Character transformer (width 256, 2 blocks) on the help texts of Python itself, AdamW."
    dataset = DatasetCard(
        name="Python's language reference (pydoc_data.topics)",
        samples=TRAIN_SAMPLES,
        source="Python standard library, pydoc_data/topics.py",
        licence="PSF-2.0",
    )
    space = {
        "lr": loguniform(1e-4, 3e-2),
        "beta1": uniform(0.8, 0.95),
        "batch_size": choice([16, 32]),
        "gamma": uniform(0.1, 1.0),
    }
    parameters = {"width": randint(32, 4096), "blocks": randint(1, 48), "step_size": randint(1, 1000)}
    metric, mode, epochs = "perplexity", "min", 5
    width = 256
    blocks = 2
    step_size = 2

    def model(self, config: Mapping[str, Any]) -> Any:
        from workers.trainer.workloads.networks import CharacterTransformer

        return CharacterTransformer(len(_alphabet()), CONTEXT, self.width, self.blocks)

    def data(self, config: Mapping[str, Any]) -> tuple[Any, Any]:
        import torch

        alphabet = {symbol: index for index, symbol in enumerate(_alphabet())}
        codes = torch.tensor([alphabet[symbol] for symbol in _text()])
        held_out = int(len(codes) * VALIDATION_SHARE)
        train, validation = codes[:-held_out], codes[-held_out:]
        return _windows(train, TRAIN_SAMPLES), _windows(validation, VALIDATION_SAMPLES)

    def loss(self, output: Any, target: Any) -> Any:
        from torch.nn.functional import cross_entropy

        return cross_entropy(output.flatten(0, 1), target.flatten())

    def summarize(self, metrics: dict[str, float]) -> dict[str, float]:
        loss = metrics["loss"]
        # beyond this the exponential only says "diverged", and it must stay a finite number
        return {**metrics, "perplexity": math.exp(min(loss, 50.0)) if math.isfinite(loss) else loss}

    def optimizer(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        return torch.optim.AdamW, {"lr": config["lr"], "betas": (config["beta1"], 0.98), "weight_decay": 0.01}

    def scheduler(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        from torch.optim.lr_scheduler import StepLR

        return StepLR, {"step_size": self.step_size, "gamma": config["gamma"]}


def _text() -> str:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def _alphabet() -> list[str]:
    return sorted(set(_text()))


def _windows(codes: Any, count: int) -> tuple[Any, Any]:
    """Return `count` windows, evenly spread: inputs (count, CONTEXT) and the same, one character later."""
    import torch

    starts = torch.linspace(0, len(codes) - CONTEXT - 2, count).long()
    windows = codes[starts[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
