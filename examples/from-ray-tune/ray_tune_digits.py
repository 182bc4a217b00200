"""A study with Ray Tune: 20 configurations of a digits classifier, stopped early by ASHA."""

import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12


def digits():
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    return TensorDataset(x[:1437], y[:1437]), x[1437:], y[1437:]


def train(config):
    train_set, x_val, y_val = digits()
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    loader = DataLoader(train_set, batch_size=config["batch_size"], shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    for _ in range(EPOCHS):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(x_val).argmax(-1) == y_val).float().mean()
        tune.report({"accuracy": float(accuracy)})


if __name__ == "__main__":
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={
            "lr": tune.loguniform(1e-3, 1.0),
            "momentum": tune.uniform(0.5, 0.99),
            "batch_size": tune.choice([32, 64]),
        },
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=20,
            scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=2, reduction_factor=3),
        ),
    )
    best = tuner.fit().get_best_result()
    print(best.config, best.metrics["accuracy"])
