"""Iterations put together from what ranks report."""

import pytest

from tests.workers.training.reports import report
from workers.training.book import Book, seats_of
from workers.training.orders import Order, left_out, working_in

LAYOUT = {
    "replicas": [
        {"microbatches": 2, "stages": [{"devices": ["r0"], "layers": 2}, {"devices": ["r1"], "layers": 2}]},
        {"microbatches": 2, "stages": [{"devices": ["r2", "r3"], "layers": 4}]},
    ]
}


@pytest.fixture
def book():
    book = Book(shares_core=True)
    book.begin(LAYOUT, 0)
    return book


def feed(book, step, ranks=(0, 1, 2, 3), **fields):
    for rank in ranks:
        book.add(report(step, rank, **fields))


def test_an_iteration_is_complete_once_every_rank_has_reported(book):
    feed(book, 1, (0, 1, 2))
    assert book.take(calm=True) == []
    book.add(report(1, 3, loss=2.5))
    (step,) = book.take(calm=True)
    # The clocks of two machines say nothing about each other: the longest duration counts.
    assert (step.step, step.loss, step.seconds, step.tokens) == (1, 2.5, 13.0, 400)
    assert [row.rank for row in step.ranks] == [0, 1, 2, 3]


def test_a_rank_that_died_before_its_report_holds_up_nothing(book):
    feed(book, 1, (0, 1, 2))
    feed(book, 2)
    assert [step.step for step in book.take(calm=True)] == [1, 2]
    feed(book, 3, (0,))
    assert [step.step for step in book.take(calm=True, flush=True)] == [3]


def test_what_is_reported_twice_or_by_nobody_counts_not(book):
    feed(book, 1)
    book.take(calm=True)
    feed(book, 1)
    book.add(report(2, 9))
    assert book.take(calm=True, flush=True) == []


@pytest.mark.parametrize(("shared", "own"), [(True, 1.0 * 2 / 1.5), (False, 2.0)])
def test_own_time_is_processor_time_and_faults_on_shared_cores_and_the_walls_elsewhere(shared, own):
    book = Book(shares_core=shared)
    book.begin(LAYOUT, 0)
    feed(book, 1, throttled=0.5)
    (step,) = book.take(calm=True)
    assert step.ranks[0].forward_s == pytest.approx(own)
    assert step.ranks[0].microbatches == 2
    assert book.costs()["resting"] == [0, 1, 2, 3]
    assert book.costs()["ranks"]["0"]["forward_s"] == pytest.approx(own)


def test_chunks_and_waits_are_kept_in_order(book):
    feed(book, 1)
    raw = book.take(calm=True)[0].ranks[1].raw
    assert [c["type"] for c in raw["chunks"]] == ["F", "B", "F", "B"]
    assert raw["bubbles"] == [{"slot": 1, "seconds": 0.5}]
    assert (raw["replica"], raw["stage"]) == (0, 1)


def test_what_is_expected_is_learned_while_all_is_calm_and_forgotten_with_the_layout(book):
    for step in range(1, 6):
        feed(book, step)
        book.take(calm=False)
    assert book.expected_s is None
    for step in range(6, 12):
        feed(book, step)
        book.take(calm=True)
    assert (book.expected_s, book.iteration_s) == (13.0, 13.0)
    book.begin(LAYOUT, 11, expected_s=7.0)
    assert (book.expected_s, book.iteration_s, book.costs()["ranks"]) == (7.0, None, {})


def test_since_something_is_wrong_only_what_came_after_counts_and_the_calm_is_remembered(book):
    for step in range(1, 15):
        feed(book, step)
        book.take(calm=True)
    for step in range(15, 19):
        for rank in (0, 2, 3):
            book.add(report(step, rank))
        book.add(report(step, 1, seconds=3.0) | {"ended_s": 200.0})
        book.take(calm=False)
    assert (book.iteration_s, book.costs()["ranks"]["1"]["forward_s"]) == (13.0, 1.0)
    book.since = 15
    assert (book.iteration_s, book.costs()["ranks"]["1"]["forward_s"]) == (100.0, 3.0)
    assert book.costs()["calm"] == {"layout": LAYOUT, "iteration_s": 13.0}
    assert book.costs()["resting"] == []  # its own device is slow
    assert book.costs()["spread"] == [1.0, 1.0]
    book.begin(LAYOUT, 18)
    assert book.costs()["calm"]["iteration_s"] == 13.0


def test_seats_ranks_and_what_a_layout_leaves_out():
    assert seats_of(LAYOUT)[3].group == 2
    assert working_in(LAYOUT) == {0, 1, 2, 3}
    assert left_out({**LAYOUT, "dead": ["r5", "r1"]}, 6) == {"idle": ["r4"], "dead": ["r5"]}


def test_an_order_is_followed_to_the_last_rank():
    order = Order(epoch=4, plan=LAYOUT, working={0, 1})
    for rank in (0, 1):
        order.take(
            {"kind": "phase", "epoch": 4, "plan_rank": rank, "name": "vote", "seconds": 0.1 * (rank + 1)}
        )
        assert order.missing
        resumed = {"kind": "resumed", "epoch": 4, "plan_rank": rank, "step": 7, "restored": None}
        order.take({**resumed, "epoch": 3})
        order.take({**resumed, "pause_s": 0.5 + rank, "sent_bytes": 10})
    assert not order.missing
    assert order.outcome() == {
        "phases": {"vote": 0.2}, "pause_s": 1.5, "sent_bytes": 20, "restored": None, "step": 7,
    }  # fmt: skip
    assert order.died({1, 5}) == {1}
    order.take({"kind": "failed", "epoch": 4, "plan_rank": 1, "reason": "no memory"})
    assert order.failure == "rank 1: no memory"
