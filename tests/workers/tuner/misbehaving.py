"""A workload whose trials go wrong in every way that a trial can; Ray actors load it."""

import os
import signal
import time

import torch

import forebay


class Misbehaving(forebay.Workload):
    """Trains one linear layer, unless its configuration says otherwise."""

    space = {"mode": forebay.grid(["well", "diverge", "raise", "killed", "silent"])}
    metric, mode, epochs, batch_size = "accuracy", "max", 2, 16

    def model(self, config):
        return torch.nn.Linear(4, 2)

    def data(self, config):
        inputs = torch.arange(128, dtype=torch.float32).reshape(32, 4) / 128
        pair = (inputs, torch.arange(32) % 2)
        return pair, pair

    def loss(self, output, target):
        return torch.nn.functional.cross_entropy(output, target)

    def metrics(self, output, target):
        return {"accuracy": (output.argmax(-1) == target).float().mean()}

    def optimizer(self, config):
        # Nobody but a trial makes an optimizer: describing the workload and gathering its facts do not.
        if config["mode"] in ("raise", "killed", "silent"):
            misbehave(config["mode"])
        return torch.optim.SGD, {"lr": float("inf") if config["mode"] == "diverge" else 0.1}


def misbehave(how):
    """Raise, die by the hand of the operating system, or fall silent for good."""
    if how == "raise":
        raise RuntimeError("this configuration cannot be trained")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)
