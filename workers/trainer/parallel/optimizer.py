"""AdamW on flat buffers, with warm-up, cosine decay and a global gradient clip.

Only additions, products, quotients and square roots: each element gets the same bits wherever it lies in a
buffer, so that replicas cut differently stay equal. Source: Loshchilov and Hutter 2019, algorithm 2.
"""

import math

from workers.trainer.parallel.spec import RunSpec
from workers.trainer.parallel.state import GRADIENT, ShardedState

EPSILON = 1e-8
LEAST_SHARE = 0.1  # of the learning rate, at the end of the decay


def learning_rate(spec: RunSpec, step: int) -> float:
    """The rate of step number `step`, counted from 1: linear warm-up, then cosine down to a tenth."""
    if step <= spec.warmup_steps:
        return spec.lr * step / spec.warmup_steps
    part = min(1.0, (step - spec.warmup_steps) / max(1, spec.steps - spec.warmup_steps))
    return spec.lr * (LEAST_SHARE + (1 - LEAST_SHARE) * 0.5 * (1 + math.cos(math.pi * part)))


def apply_step(spec: RunSpec, state: ShardedState, step: int, norm: float) -> None:
    """Update weights and moments in place for step number `step`, counted from 1.

    `norm` is the global gradient norm; every rank passes the same bits.
    """
    beta1, beta2 = spec.betas
    weight, first, second = (state.flat[kind] for kind in ("weight", "exp_avg", "exp_avg_sq"))
    gradient = state.flat[GRADIENT]
    if norm > spec.clip_norm > 0:
        gradient.mul_(spec.clip_norm / norm)
    rate = learning_rate(spec, step)
    first.mul_(beta1).add_(gradient * (1 - beta1))
    second.mul_(beta2).add_(gradient.square_().mul_(1 - beta2))
    denominator = second.sqrt().div_(math.sqrt(1 - beta2**step)).add_(EPSILON)
    weight[: state.decaying].mul_(1 - rate * spec.weight_decay)
    weight.sub_((first / denominator).mul_(rate / (1 - beta1**step)))
    gradient.zero_()
