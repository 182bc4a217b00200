from hypothesis import given
from hypothesis import strategies as st

from journal.core.ids import new_id, uuid7_at

TIMES = st.integers(0, 2**48 - 1)
BITS = st.integers(0, 2**74 - 1)


@given(TIMES, BITS)
def test_ids_are_version_seven(now_ms, bits):
    made = uuid7_at(now_ms, bits)
    assert (made.version, made.variant) == (7, "specified in RFC 4122")


@given(TIMES, TIMES, BITS, BITS)
def test_ids_sort_by_time(first_ms, second_ms, first_bits, second_bits):
    if first_ms < second_ms:
        assert str(uuid7_at(first_ms, first_bits)) < str(uuid7_at(second_ms, second_bits))


def test_ids_do_not_repeat():
    assert len({new_id() for _ in range(1000)}) == 1000
