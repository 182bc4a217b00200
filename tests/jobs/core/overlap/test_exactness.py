"""The label search against every interleaving, on random graphs of any shape."""

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.core.overlap import OverBudget, make_plan, memory_profile, plan_document, read_graph, simulate
from jobs.core.overlap.graph import given_order

SEEDS = st.integers(min_value=0, max_value=10**9)
POLICIES = ["serial", "round-robin", "exact", "bucketed"]


def steps_of(document):
    """The order of a plan's document with its buckets."""
    bucket_of = {name: tuple(bucket) for bucket in document["buckets"] for name in bucket}
    return list(dict.fromkeys(bucket_of.get(name, (name,)) for name in document["order"]))


@given(SEEDS, st.booleans())
@settings(max_examples=120, deadline=None)
def test_time_and_peak_of_the_given_order_are_those_of_the_definition(reference, seed, merge) -> None:
    document = reference.random_graph(random.Random(seed), 12, merge=merge)
    graph, model = read_graph(document), reference.Model(document)
    order = [(name,) for name in model.names]
    assert simulate(graph, given_order(graph)).makespan_s == model.makespan(order)
    assert memory_profile(graph, given_order(graph)).peak_bytes == model.peak(order)


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_exact_is_the_best_of_all_interleavings(reference, seed) -> None:
    document = reference.random_graph(random.Random(seed), 9)
    model = reference.Model(document)
    plan = plan_document(make_plan(read_graph(document), "exact"))
    orders = [*model.interleavings(), [(name,) for name in model.names]]
    assert plan["exact"]
    assert plan["makespan"] == pytest.approx(min(map(model.makespan, orders)), rel=1e-12)
    assert model.makespan(steps_of(plan)) == plan["makespan"]
    assert model.is_legal_order(steps_of(plan))


@given(SEEDS, st.floats(min_value=0, max_value=1))
@settings(max_examples=150, deadline=None)
def test_exact_is_the_best_of_all_interleavings_within_the_budget(reference, seed, tightness) -> None:
    document = reference.random_graph(random.Random(seed), 9)
    model = reference.Model(document)
    orders = [*model.interleavings(), [(name,) for name in model.names]]
    peaks = [model.peak(order) for order in orders]
    document["memory_budget"] = min(peaks) - 1 + int(tightness * (max(peaks) - min(peaks) + 1))
    if document["memory_budget"] < 0:
        return
    within = [o for o, peak in zip(orders, peaks, strict=True) if peak <= document["memory_budget"]]
    if not within:
        with pytest.raises(OverBudget) as refused:
            make_plan(read_graph(document), "exact")
        assert refused.value.smallest_peak_bytes == min(peaks)
        return
    plan = plan_document(make_plan(read_graph(document), "exact"))
    assert plan["exact"]
    assert plan["makespan"] == pytest.approx(min(map(model.makespan, within)), rel=1e-12)
    assert model.peak(steps_of(plan)) == plan["peak_bytes"] <= document["memory_budget"]


@given(seed=SEEDS, budgeted=st.booleans())
@example(seed=2089, budgeted=True)  # only a merge that saves no time fits: it frees an input early
@settings(max_examples=120, deadline=None)
def test_bucketed_is_no_worse_than_any_interleaving_with_any_merges(reference, seed, budgeted) -> None:
    rng = random.Random(seed)
    document = reference.random_graph(rng, 8, merge=True)
    model = reference.Model(document)
    orders = list(model.interleavings(merge=True))
    if budgeted:
        document["memory_budget"] = rng.choice([model.peak(order) for order in orders])
        orders = [order for order in orders if model.peak(order) <= document["memory_budget"]]
    plan = plan_document(make_plan(read_graph(document), "bucketed"))
    steps = steps_of(plan)
    assert model.is_legal_order(steps)
    assert model.makespan(steps) == pytest.approx(plan["makespan"], rel=1e-12)
    assert model.peak(steps) == plan["peak_bytes"] <= document.get("memory_budget", plan["peak_bytes"])
    assert plan["makespan"] <= min(map(model.makespan, orders)) * (1 + 1e-12)


@given(SEEDS, st.sampled_from(POLICIES), st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_policy_is_legal_within_the_budget_and_never_slower_than_the_given_order(
    reference, seed, policy, budgeted
) -> None:
    rng = random.Random(seed)
    document = reference.random_graph(rng, 14, merge=True)
    model = reference.Model(document)
    given_steps = [(name,) for name in model.names]
    if budgeted:
        document["memory_budget"] = rng.randint(0, int(model.peak(given_steps)) + 3)
    budget = document.get("memory_budget", float("inf"))
    refused_at = None
    try:
        plan = plan_document(make_plan(read_graph(document), policy))
    except OverBudget as refused:
        refused_at = document["memory_budget"] = refused.smallest_peak_bytes
        plan = plan_document(make_plan(read_graph(document), policy))
    if refused_at is not None:
        assert refused_at > budget
        budget = refused_at
    steps = steps_of(plan)
    assert model.is_legal_order(steps)
    assert list(itertools.chain(*steps)) == plan["order"]
    assert model.makespan(steps) == pytest.approx(plan["makespan"], rel=1e-12)
    assert model.peak(steps) == plan["peak_bytes"] <= budget
    if model.peak(given_steps) <= budget:
        assert plan["makespan"] <= plan["serial_makespan"]
    assert plan["critical_path"] <= plan["lower_bound"] <= plan["makespan"]
