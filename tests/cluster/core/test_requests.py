"""Requests in whole thousandths; what is no amount of devices is refused at the door."""

import pytest

from cluster.core.errors import RequestError
from cluster.core.requests import TaskShape, gang, memory_milli, milli_of, total_milli


@pytest.mark.parametrize(
    ("value", "milli"),
    [(1, 1000), (0.1, 100), ("0.9", 900), (0, 0), (2.5, 2500), ("1e0", 1000), (1_000_000, 10**9)],
)
def test_an_amount_is_exact(value, milli):
    assert milli_of(value) == milli


@pytest.mark.parametrize(
    "value",
    ["NaN", "-0.5", "1e400", "inf", 2**63, float("nan"), float("-inf"), -1, 0.0001, "", "x", None, True, []],
)
def test_what_is_no_amount_is_refused(value):
    with pytest.raises(RequestError, match="devices:"):
        milli_of(value)


def test_three_bundles_add_up_exactly():
    assert sum(milli_of(share) for share in (0.1, 0.9, 0.9)) == 1900


@pytest.mark.parametrize(
    "bad",
    [
        {"count": 0},
        {"devices": -1},
        {"milli": 0},
        {"milli": 1001},
        {"count": 1.5},
        {"devices": 2**63},
        {"min_count": 2},
    ],
)
def test_a_shape_out_of_bounds_is_refused(bad):
    with pytest.raises(RequestError):
        TaskShape(**bad)


def test_a_gang_counts_all_its_tasks():
    assert total_milli((TaskShape(1, 8), TaskShape(1, 8))) == 16_000
    assert total_milli(gang(0)) == 0


@pytest.mark.parametrize(
    ("asked", "device", "milli"), [(1, 80, 13), (40, 80, 500), (81, 80, 1013), (5, 0, 1000)]
)
def test_memory_is_a_share_rounded_up(asked, device, milli):
    assert memory_milli(asked, device) == milli
