"""Samples that follow one another, told as one."""

from workers.squeezer.samples import joined


def sample(**changes):
    values = {
        "covers_s": 1.0, "waited_s": 0.5, "lent_s": 0.4, "used_s": 0.1, "leaked_s": 0.0, "granted_s": 0.2,
        "bubbles": 4,
        "in_pieces": 0, "utilisation": 0.2, "lending": True, "slots": [], "skipped": [], "guests": [],
    }  # fmt: skip
    return values | changes


def slot(number, seen, used_s):
    return {
        "slot": number,
        "expected_s": 0.01,
        "median_s": 0.02,
        "lent_s": 0.2,
        "used_s": used_s,
        "seen": seen,
    }


def test_sums_add_up_and_the_rest_is_the_last_ones() -> None:
    found = joined([sample(), sample(used_s=0.4, lending=False)])
    assert (found["covers_s"], found["waited_s"], found["used_s"], found["bubbles"]) == (2.0, 1.0, 0.5, 8)
    assert (found["utilisation"], found["got"]) == (0.5, 0.5 / 0.4)
    assert not found["lending"]


def test_slots_skips_and_steps_are_added_each_by_its_own_name() -> None:
    first = sample(
        slots=[slot(1, 3, 0.1)],
        skipped=[{"slot": 1, "rule": "step", "count": 2, "reason": "old numbers"}],
        guests=[{"name": "g", "run": "c0", "steps": 5}, {"name": "left", "run": "c1", "steps": 9}],
    )
    second = sample(
        slots=[slot(4, 1, 0.0), slot(1, 2, 0.05)],
        skipped=[
            {"slot": 1, "rule": "step", "count": 1, "reason": "new numbers"},
            {"slot": 4, "rule": "control", "count": 1, "reason": "left alone"},
        ],
        guests=[{"name": "g", "run": "c2", "steps": 2}],
    )
    found = joined([first, second])
    assert [(row["slot"], row["seen"], round(row["used_s"], 6)) for row in found["slots"]] == [
        (1, 5, 0.15),
        (4, 1, 0.0),
    ]
    assert found["skipped"] == [
        {"slot": 1, "rule": "step", "count": 3, "reason": "new numbers"},
        {"slot": 4, "rule": "control", "count": 1, "reason": "left alone"},
    ]
    assert found["guests"] == [{"name": "g", "run": "c2", "steps": 7}]


def test_a_board_without_any_waiting_has_no_utilisation() -> None:
    assert [joined([sample(waited_s=0.0, granted_s=0.0)])[name] for name in ("utilisation", "got")] == [
        None,
        None,
    ]
