"""Random streams: a trial's dropout masks are those of the plain model, in any company."""

import pytest
import torch
from torch import nn

from tuning.core import hydro
from tuning.core.hydro.random_streams import RandomStreams

KINDS = {
    "Dropout": (lambda: nn.Dropout(0.4), (4, 8)),
    "Dropout after a transpose": (lambda: Transposed(), (4, 8, 3)),
    "Dropout1d": (lambda: nn.Dropout1d(0.4), (4, 8, 3)),
    "Dropout2d": (lambda: nn.Dropout2d(0.4), (4, 8, 3, 3)),
    "Dropout3d": (lambda: nn.Dropout3d(0.4), (4, 8, 2, 2, 2)),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.4), (4, 8)),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.4), (4, 8, 3)),
    "everything dropped": (lambda: nn.Dropout(1.0), (4, 8)),
}


class Transposed(nn.Module):
    """Dropout over a tensor whose memory is in another order than its dimensions."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.4)

    def forward(self, x):
        return self.drop(x.transpose(1, 2))


class Net(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1) + 1.0)
        self.layer = layer

    def forward(self, x):
        return self.layer(self.layer(x * self.weight) + 1.0) if x.dim() < 3 else self.layer(x * self.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_those_of_the_plain_model_after_manual_seed(kind):
    layer, shape = KINDS[kind]
    models = [Net(layer()) for _ in range(3)]
    seeds = [11, 12, 11]
    inputs = torch.rand(shape) + 0.5
    fused = hydro.fuse(models, inputs, seeds=seeds).train()
    found = [fused(inputs) for _ in range(3)]
    for index, model in enumerate(models):
        torch.manual_seed(seeds[index])
        for outputs in found:
            torch.testing.assert_close(outputs[index], model.train()(inputs), rtol=1e-5, atol=1e-6)


def test_fusing_and_training_leave_the_global_stream_alone():
    models, inputs = [Net(nn.Dropout(0.5)) for _ in range(2)], torch.rand(4, 8)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    hydro.fuse(models, inputs, seeds=[1, 2]).train()(inputs)
    assert torch.equal(torch.rand(3), expected)


def test_masks_do_not_depend_on_company_and_survive_repacking():
    models = [Net(nn.Dropout(0.5)) for _ in range(4)]
    inputs = torch.rand(4, 8)
    alone = hydro.fuse(models[2:3], inputs, seeds=[33]).train()
    expected = [alone(inputs)[0] for _ in range(4)]
    fused = hydro.fuse(models, inputs, seeds=[31, 32, 33, 34]).train()
    assert torch.equal(fused(inputs)[2], expected[0])
    part, _ = hydro.defuse(fused, None, [3, 2])
    assert torch.equal(part(inputs)[1], expected[1])
    whole, _ = hydro.merge([(fused, None), (part, None)])
    # The container that was left behind is one draw behind as well.
    assert torch.equal(whole(inputs)[2], expected[1])
    part, _ = hydro.defuse(whole, None, [5])
    assert torch.equal(part(inputs)[0], expected[3])
    assert part.seeds == [33]


def test_evaluation_draws_nothing():
    fused = hydro.fuse([Net(nn.Dropout(0.5))], torch.rand(4, 8), seeds=[1])
    before = fused.streams.states()
    fused.eval()(torch.rand(4, 8))
    assert torch.equal(fused.streams.states(), before)


def test_seeds_default_to_the_global_stream():
    def seeds():
        torch.manual_seed(9)
        return hydro.fuse([Net(nn.Dropout(0.5)) for _ in range(2)], torch.rand(4, 8)).seeds

    assert seeds() == seeds()
    assert len(set(seeds())) == 2


def test_streams_can_be_saved_and_go_on():
    streams = RandomStreams([1, 2], torch.device("cpu"))
    streams.keep_mask((3,), 0.5, torch.float32)
    states = streams.states()
    expected = streams.keep_mask((50,), 0.5, torch.float32)
    other = RandomStreams([0, 0], torch.device("cpu"))
    other.restore([1, 2], states)
    assert torch.equal(other.keep_mask((50,), 0.5, torch.float32), expected)
    with pytest.raises(hydro.FuseError, match="2 trials"):
        RandomStreams([0], torch.device("cpu")).restore([1, 2], states)
