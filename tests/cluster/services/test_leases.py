import time

import pytest

from cluster.core.errors import LeaseLost
from cluster.services.leases import fence, release_all, release_lease, renew_all, renew_lease, take_lease

pytestmark = pytest.mark.django_db


def test_a_held_lease_is_not_given_to_another():
    assert take_lease(name="study:1", owner="a", seconds=10)
    assert take_lease(name="study:1", owner="b", seconds=10) is None


def test_an_expired_lease_goes_to_the_next_with_a_higher_epoch():
    first = take_lease(name="study:1", owner="a", seconds=0.01)
    time.sleep(0.05)
    second = take_lease(name="study:1", owner="b", seconds=10)
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLost):
        renew_lease(first, seconds=10)
    with pytest.raises(LeaseLost):
        fence(first)


def test_a_lease_in_hand_can_be_renewed_and_fences():
    held = take_lease(name="study:1", owner="a", seconds=10)
    renew_lease(held, seconds=10)
    fence(held)
    assert renew_all("a", seconds=10) == {"study:1"}


def test_a_released_lease_is_free_at_once():
    release_lease(take_lease(name="study:1", owner="a", seconds=100))
    assert take_lease(name="study:1", owner="b", seconds=10)


def test_all_of_an_owner_are_renewed_and_released_together():
    for name in ("study:1", "device:1", "device:2"):
        take_lease(name=name, owner="a", seconds=10)
    take_lease(name="device:3", owner="b", seconds=10)
    assert renew_all("a", seconds=10) == {"study:1", "device:1", "device:2"}
    release_all("a")
    assert renew_all("a", seconds=10) == set()
    assert take_lease(name="device:3", owner="c", seconds=10) is None
