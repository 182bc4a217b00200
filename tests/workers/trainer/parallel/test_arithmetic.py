"""Every schedule and layout computes what one ordinary model computes on the same samples."""

from fractions import Fraction

import pytest
import torch
from torch.nn import functional as F

from jobs.core.layout.transfer import Box
from workers.trainer.parallel.data import Packer, load_corpus
from workers.trainer.parallel.optimizer import learning_rate
from workers.trainer.parallel.spec import RunSpec
from workers.trainer.parallel.state import ShardedState
from workers.trainer.workloads.networks import CharacterTransformer

STEPS = 2


def first_weights(spec):
    boxes = [Box(layer, Fraction(0), Fraction(1)) for layer in range(spec.layers)]
    state = ShardedState(spec, load_corpus(spec.context).symbols, boxes, torch.device("cpu"))
    state.fill(spec.seed)
    return state.views["weight"]


def reference(spec, weights):
    """Train pydoc-gpt's own network by ordinary autograd; losses and gradients (after the clip) by step."""
    corpus = load_corpus(spec.context)
    packer = Packer(corpus, spec.microbatch_tokens, spec.seed)
    model = CharacterTransformer(corpus.symbols, spec.context, spec.width, spec.layers)
    model.load_state_dict(weights)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": spec.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=spec.betas)
    cursor, losses, gradients = 0, [], []
    for step in range(1, STEPS + 1):
        batches, cursor = packer.pack(cursor, spec.microbatches)
        total = sum(packer.tokens(batch) for batch in batches)
        optimizer.zero_grad()
        loss = torch.zeros(())
        for batch in batches:
            packed = packer.batch(0, batch, torch.device("cpu"))
            rows = zip(
                packed.codes_T.split(packed.lengths), packed.targets_T.split(packed.lengths), strict=True
            )
            for codes, targets in rows:
                x = model.symbols(codes[None]) + model.positions[: len(codes)]
                logits = model.head(model.norm(model.blocks(x)))[0]
                loss = loss + F.cross_entropy(logits, targets, reduction="sum") / total
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip_norm)
        losses.append(loss.item())
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(spec, step)
        optimizer.step()
    return losses, gradients, dict(model.named_parameters())


LAYOUTS = {
    "one rank": [(8, [([0], 4)])],
    "a group of two": [(8, [([0, 1], 4)])],
    "two replicas of two stages": [(4, [([0], 2), ([1], 2)]), (4, [([2], 2), ([3], 2)])],
    "two replicas cut differently": [(5, [([0, 1], 1), ([2], 3)]), (3, [([3], 2), ([4, 5], 2)])],
    "four shards to one": [(8, [([0, 1, 2, 3], 2), ([4], 2)])],
}
SPLIT_EVENLY = [(4, [([0], 2), ([1, 2], 2)]), (4, [([3, 4], 2), ([5], 2)])]
CASES = [
    *(("1f1b", name) for name in LAYOUTS),
    ("gpipe", "two replicas cut differently"),
    ("zb-h1", "two replicas cut differently"),
    ("interleaved", "evenly"),
    ("zb-v", "evenly"),
]


@pytest.mark.parametrize(("schedule", "name"), CASES)
def test_losses_and_gradients_equal_those_of_one_ordinary_model(crew, layout_of, schedule, name):
    layout = layout_of(*(SPLIT_EVENLY if name == "evenly" else LAYOUTS[name]))
    run = crew(layout, schedule=schedule, steps=STEPS)
    run.finished()
    spec: RunSpec = run.fleet.spec
    losses, gradients, weights = reference(spec, first_weights(spec))
    assert run.losses() == pytest.approx(losses, abs=1e-5)
    first = dict.fromkeys(gradients[0], 0.0)
    for gradient in gradients:
        first = {n: spec.betas[0] * first[n] + (1 - spec.betas[0]) * gradient[n] for n in gradient}
    moments = run.tensors("exp_avg")
    for tensor, moment in moments.items():
        torch.testing.assert_close(moment, first[tensor], atol=1e-5, rtol=1e-3)
    for tensor, weight in run.tensors("weight").items():
        torch.testing.assert_close(weight, weights[tensor].detach(), atol=2e-4, rtol=1e-3)
