"""Goodput of data-parallel training: throughput times statistical efficiency.

Pollux: Qiao et al., OSDI 2021, section 3.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GoodputModel:
    """A job's profile.

    Attributes:
        compute_s, compute_per_sample_s: time of one step's gradients, constant and per local sample
            (alpha_c, beta_c).
        local_s, local_growth_s: time of a synchronisation inside a node, and its growth per further replica.
        remote_s, remote_growth_s: the same across nodes.
        overlap: how much of the two overlap, 1 for none to 10 for nearly all (gamma).
        noise_scale: gradient noise scale in samples (phi).
        initial_batch: the batch size the user chose (M0).
        local_batches: local batch sizes that can be used, ascending.
    """

    compute_s: float
    compute_per_sample_s: float
    local_s: float
    local_growth_s: float
    remote_s: float
    remote_growth_s: float
    overlap: float
    noise_scale: float
    initial_batch: int
    local_batches: tuple[int, ...]

    def step_s(self, replicas: int, local_batch: int, nodes: int) -> float:
        """Return the time of one step on so many replicas over so many nodes."""
        gradients = self.compute_s + self.compute_per_sample_s * local_batch
        if replicas <= 1:
            return gradients
        constant, growth = (
            (self.local_s, self.local_growth_s) if nodes <= 1 else (self.remote_s, self.remote_growth_s)
        )
        synchronisation = constant + growth * max(0, replicas - 2)
        powers = gradients**self.overlap + synchronisation**self.overlap
        return float(powers ** (1.0 / self.overlap))

    def efficiency(self, batch: int) -> float:
        """Return the progress per sample at a batch size, relative to the initial one (section 3.1)."""
        return (self.noise_scale + self.initial_batch) / (self.noise_scale + batch)

    def goodput(self, replicas: int, nodes: int = 1) -> float:
        """Return useful samples per second at the best local batch size; 0 without replicas."""
        if replicas < 1:
            return 0.0
        best = 0.0
        for local_batch in self.local_batches:
            batch = replicas * local_batch
            if batch < self.initial_batch and local_batch != self.local_batches[-1]:
                continue
            throughput = batch / self.step_s(replicas, local_batch, nodes)
            best = max(best, throughput * min(1.0, self.efficiency(batch)))
        return best
