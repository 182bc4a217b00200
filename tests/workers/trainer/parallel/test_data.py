"""Samples, packing and the cursor: every sample once per pass, whoever runs it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.trainer.parallel.data import Packer, load_corpus

CONTEXT = 32


def drawn(packer, cursor, count):
    batches, after = packer.pack(cursor, count)
    return [sample for batch in batches for sample in batch], batches, after


@given(st.integers(0, 40_000), st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 40, 200]))
def test_the_stream_of_samples_does_not_depend_on_how_it_is_cut(cursor, first, second, budget):
    packer = Packer(load_corpus(CONTEXT), budget, seed=3)
    whole, batches, end = drawn(packer, cursor, first + second)
    one, _, middle = drawn(packer, cursor, first)
    two, _, after = drawn(packer, middle, second)
    assert (one + two, after) == (whole, end)
    assert end - cursor == len(whole)
    assert all(packer.tokens(batch) <= budget or len(batch) == 1 for batch in batches)


def test_every_sample_comes_once_per_pass_in_another_order():
    corpus = load_corpus(CONTEXT)
    packer = Packer(corpus, 10_000, seed=0)
    samples, _, _ = drawn(packer, 0, 120)
    assert len(samples) > 2 * len(corpus)
    first, second = samples[: len(corpus)], samples[len(corpus) : 2 * len(corpus)]
    assert sorted(first) == list(range(len(corpus)))
    assert sorted(second) == list(range(len(corpus), 2 * len(corpus)))
    assert [sample % len(corpus) for sample in second] != first


def test_a_packed_batch_predicts_each_next_character_and_restarts_positions():
    packer = Packer(load_corpus(CONTEXT), 100, seed=0)
    batches, _ = packer.pack(0, 1)
    batch = packer.batch(5, batches[0], torch.device("cpu"))
    assert (batch.index, batch.tokens) == (5, len(batch.codes_T))
    assert len(set(batch.lengths)) > 1 or len(batch.lengths) > 1
    start = 0
    for length in batch.lengths:
        codes, targets = (t[start : start + length] for t in (batch.codes_T, batch.targets_T))
        assert torch.equal(codes[1:], targets[:-1])
        assert batch.positions_T[start : start + length].tolist() == list(range(length))
        start += length
    assert batch.sum_squared_lengths == sum(length**2 for length in batch.lengths)


@pytest.mark.parametrize("context", [8, 64])
def test_no_sample_is_longer_than_the_context(context):
    corpus = load_corpus(context)
    assert corpus.lengths.max() <= context
    assert int(corpus.codes.max()) == corpus.symbols - 1
    assert corpus.starts.max() + context < len(corpus.codes) + context
