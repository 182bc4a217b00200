"""What training one model on several devices brings: measured steps, estimated links.

A step on n devices costs its fixed part, the n-th part of what grows with the batch, and the exchange of all
gradients. The first two come from two measured steps, on the whole batch and on half of it; the exchange is
an estimate by the kind of device and by whether all are in one machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WORTHWHILE = 1.2  # a target must be predicted to train this many times as fast
ENOUGH = 0.97  # of the best speed-up, if fewer devices reach it
CPU = "cpu"


@dataclass(frozen=True)
class Link:
    """An exchange among devices: seconds for the smallest one, bytes per second of each device."""

    latency_s: float
    bytes_per_s: float


# Estimates: loopback as measured for gloo (docs/hydro.md), the rest on the careful side of common hardware.
LINKS = {
    (True, True): Link(1e-3, 4e8),
    (True, False): Link(2e-3, 1e8),
    (False, True): Link(2e-4, 1e10),
    (False, False): Link(5e-4, 1e9),
}


@dataclass(frozen=True)
class StepCost:
    """A training step of a full model: seconds on the whole batch and on half of it, bytes of gradients."""

    whole_s: float
    half_s: float
    gradient_bytes: int

    def on(self, ranks: int, batch_size: int, link: Link) -> float:
        """Return the predicted seconds of a step on so many devices."""
        if ranks == 1:
            return self.whole_s
        growing_s = min(max(2 * (self.whole_s - self.half_s), 0.0), self.whole_s)
        largest_share = -(-batch_size // ranks) / batch_size
        exchanged = 2 * (ranks - 1) / ranks * self.gradient_bytes
        fixed_s = self.whole_s - growing_s
        return fixed_s + growing_s * largest_share + link.latency_s + exchanged / link.bytes_per_s


@dataclass(frozen=True)
class Width:
    """How many devices a target should have, how much faster it is predicted to be, and why."""

    ranks: int
    speedup: float
    reason: str


def kind_of(label: str) -> str:
    """Return the kind of a device by its label: `node/kind:index`, or `kind:index`."""
    return label.rpartition("/")[2].rpartition(":")[0]


def node_of(label: str) -> str:
    """Return the machine of a device by its label; empty where there is only one."""
    return label.rpartition("/")[0]


def link_among(labels: Sequence[str]) -> Link:
    """Return how these devices exchange gradients."""
    one_machine = len({node_of(label) for label in labels}) == 1
    return LINKS[kind_of(labels[0]) == CPU, one_machine]


def suitable(device: str, others: Sequence[str]) -> list[str]:
    """Return the devices of the same kind, those of the same machine first."""
    alike = [label for label in others if kind_of(label) == kind_of(device)]
    return sorted(alike, key=lambda label: (node_of(label) != node_of(device), others.index(label)))


def best_width(cost: StepCost, batch_size: int, device: str, others: Sequence[str]) -> Width:
    """Return how many of a device and `others` (see `suitable`) a target should train on.

    As many as are predicted to be fastest, no more than the batch has samples, and one where several are not
    `WORTHWHILE`.
    """
    seconds = {1: cost.whole_s}
    for ranks in range(2, min(1 + len(others), batch_size) + 1):
        seconds[ranks] = cost.on(ranks, batch_size, link_among([device, *others[: ranks - 1]]))
    if len(seconds) == 1:
        return Width(1, 1.0, "there are no devices beside it, or no samples for them")
    several = {ranks: taken_s for ranks, taken_s in seconds.items() if ranks > 1}
    ranks = next(n for n, taken_s in several.items() if taken_s * ENOUGH <= min(several.values()))
    speedup = cost.whole_s / seconds[ranks]
    words = f"a step would take {_ms(seconds[ranks])} on {ranks} devices and takes {_ms(cost.whole_s)} on one"
    if speedup < WORTHWHILE:
        return Width(1, 1.0, f"{words}: {speedup:.2f} times as fast, below {WORTHWHILE}")
    return Width(ranks, speedup, f"{words}: {speedup:.2f} times as fast, predicted")


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
