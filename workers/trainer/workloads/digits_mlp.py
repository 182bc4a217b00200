"""digits-mlp: a four-layer ReLU network on scikit-learn's handwritten digits."""

from collections.abc import Mapping
from typing import Any

from tuning.core.space import choice, loguniform, randint, uniform
from tuning.core.workload import DatasetCard, Workload

TRAIN_SAMPLES = 1437
SPLIT_SEED = 0
PIXEL_MAXIMUM = 16.0


class DigitsMlp(Workload):
    """A four-layer ReLU network of width 512 on 8x8 digits, trained by SGD with momentum."""

    name = "digits-mlp"
    description = "Four-layer ReLU network (width 512) on scikit-learn's 8x8 digits, SGD with momentum."
    dataset = DatasetCard(
        name="Optical Recognition of Handwritten Digits",
        samples=TRAIN_SAMPLES,
        source="scikit-learn, sklearn/datasets/data/digits.csv.gz (UCI repository)",
        licence="CC BY 4.0",
    )
    space = {
        "lr": loguniform(1e-3, 1.0),
        "momentum": uniform(0.5, 0.99),
        "batch_size": choice([32, 64, 128]),
        "gamma": uniform(0.1, 1.0),
    }
    parameters = {"width": randint(8, 8192), "step_size": randint(1, 1000)}
    metric, mode, epochs = "accuracy", "max", 20
    width = 512
    step_size = 5

    def model(self, config: Mapping[str, Any]) -> Any:
        from torch import nn

        return nn.Sequential(
            nn.Linear(64, self.width),
            nn.ReLU(),
            nn.Linear(self.width, self.width),
            nn.ReLU(),
            nn.Linear(self.width, self.width),
            nn.ReLU(),
            nn.Linear(self.width, 10),
        )

    def data(self, config: Mapping[str, Any]) -> tuple[Any, Any]:
        import numpy as np
        import torch

        from workers.trainer.workloads.package_data import package_file, read_table

        table = read_table(package_file("sklearn", "datasets", "data", "digits.csv.gz"))
        order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
        pixels = torch.from_numpy(table[order, :64] / PIXEL_MAXIMUM)
        labels = torch.from_numpy(table[order, 64].astype("int64"))
        return (
            (pixels[:TRAIN_SAMPLES], labels[:TRAIN_SAMPLES]),
            (pixels[TRAIN_SAMPLES:], labels[TRAIN_SAMPLES:]),
        )

    def metrics(self, output: Any, target: Any) -> dict[str, Any]:
        return {"accuracy": (output.argmax(-1) == target).float().mean()}

    def optimizer(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        return torch.optim.SGD, {"lr": config["lr"], "momentum": config["momentum"]}

    def scheduler(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        from torch.optim.lr_scheduler import StepLR

        return StepLR, {"step_size": self.step_size, "gamma": config["gamma"]}
