"""The same study with Forebay: narrow surrogates, trained several at a time, then the best at full width."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import forebay

EPOCHS = 12


def digits():
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    return TensorDataset(x[:1437], y[:1437]), x[1437:], y[1437:]


@forebay.workload(
    space={
        "lr": forebay.loguniform(1e-3, 1.0),
        "momentum": forebay.uniform(0.5, 0.99),
        "batch_size": forebay.choice([32, 64]),
    },
    metric="accuracy",
    mode="max",
    epochs=EPOCHS,
)
def train(config):
    train_set, x_val, y_val = digits()
    model = forebay.prepare_model(
        nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    )
    loader = forebay.prepare_data_loader(DataLoader(train_set, batch_size=config["batch_size"], shuffle=True))
    optimizer = forebay.prepare_optimizer(
        torch.optim.SGD, model, lr=config["lr"], momentum=config["momentum"]
    )
    scheduler = forebay.prepare_scheduler(torch.optim.lr_scheduler.StepLR, optimizer, step_size=4, gamma=0.5)
    for _ in range(EPOCHS):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            forebay.backward(forebay.losses(nn.functional.cross_entropy, model(x), y))
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(x_val).argmax(-1) == y_val).float().mean(-1)
        forebay.report({"accuracy": accuracy})


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    result = forebay.tune(
        train, trials=trials, scheduler={"name": "asha", "grace": 2, "reduction": 3}, scaling=8
    )
    print(result.best["config"], result.best["metric"])
