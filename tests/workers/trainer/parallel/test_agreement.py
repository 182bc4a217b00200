"""What ranks conclude from each other's votes."""

import pytest

from workers.trainer.parallel.agreement import Vote, agreed, common_progress, rolled_forward
from workers.trainer.parallel.desk import Change
from workers.trainer.parallel.errors import Refused

CHANGE = Change(3, {"replicas": []}, "d", (0, 1, 2), 0.0)


def vote(rank, step, *, prepared=None, norm=0.0, cursor=None, digest="d"):
    cursor = 10 * step if cursor is None else cursor
    progress = None if step < 0 else {"step": step, "cursor": cursor, "random": f"r{step}"}
    return Vote(rank, digest, progress, None if step < 0 else {}, prepared, norm)


def by_rank(*votes):
    return {row.rank: row for row in votes}


def test_a_digest_that_differs_on_one_rank_stops_the_change():
    with pytest.raises(Refused, match="differs on ranks 1$"):
        agreed(CHANGE, by_rank(vote(0, 4), vote(1, 4, digest="other"), vote(2, 4)))
    agreed(CHANGE, by_rank(vote(0, 4), vote(1, 4), vote(2, 4)))


def test_a_commit_that_only_some_ranks_saw_is_completed_by_the_others():
    votes = by_rank(vote(0, 5, norm=0.7), vote(1, 4, prepared=5), vote(2, -1))
    after, norm = rolled_forward(votes)
    assert norm == 0.7
    assert [after[rank].step for rank in range(3)] == [5, 5, -1]
    assert common_progress(after).cursor == 50


def test_gradients_nobody_applied_are_dropped():
    votes = by_rank(vote(0, 4, prepared=5), vote(1, 4, prepared=5))
    assert rolled_forward(votes) == (votes, None)
    assert common_progress(votes).step == 4


def test_a_rank_that_fell_further_behind_counts_as_one_without_state():
    votes = by_rank(vote(0, 5), vote(1, 3))
    assert rolled_forward(votes)[0] == votes
    assert common_progress(votes).step == 5


def test_nobody_holding_anything_is_no_progress():
    assert common_progress(by_rank(vote(0, -1), vote(1, -1))) is None


def test_ranks_at_one_step_with_different_cursors_are_refused():
    with pytest.raises(Refused, match="data cursor"):
        common_progress(by_rank(vote(0, 5), vote(1, 5, cursor=51)))
