import base64
import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.keyset import (
    InvalidQuery,
    decode_cursor,
    encode_cursor,
    nullable,
    read_integer,
    read_json,
    read_number,
    read_text,
    read_time,
    read_uuid,
)

READERS = [read_integer, nullable(read_number), read_text, read_time, read_uuid, read_json]


@given(
    st.tuples(
        st.integers(-(2**63) + 1, 2**63 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
        st.datetimes(timezones=st.just(UTC)),
        st.uuids(),
        st.booleans() | st.integers(-9, 9) | st.text("abc") | st.lists(st.integers(-9, 9), max_size=3),
    )
)
def test_a_cursor_gives_back_the_key_it_was_made_of(key):
    assert decode_cursor(encode_cursor("-x", key), "-x", READERS) == list(key)


def test_a_cursor_is_text_that_needs_no_quoting_in_an_address():
    cursor = encode_cursor("name", ["ä ?&=" * 20, UUID(int=3), datetime(2026, 1, 1, tzinfo=UTC)])
    assert all(c.isalnum() or c in "-_" for c in cursor)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "%%%",
        "é",
        "e30",
        "bnVsbA",
        "W10",
        "[]",
        "A" * 3000,
        encode_cursor("other", [1]),
        encode_cursor("x", [1, 2]),
    ],
)
def test_a_cursor_of_another_list_or_none_at_all_is_refused(cursor):
    with pytest.raises(InvalidQuery) as caught:
        decode_cursor(cursor, "x", [read_integer])
    assert caught.value.parameter == "cursor"


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        (read_integer, True),
        (read_integer, 1.5),
        (read_integer, 2**63),
        (read_integer, "1"),
        (read_number, None),
        (read_number, "1"),
        (read_number, 10**400),
        (read_text, 1),
        (read_text, "a\0"),
        (read_time, "2026-01-01T00:00:00"),
        (read_time, "yesterday"),
        (read_uuid, "1"),
        (read_json, {"a": 1}),
        (read_json, "a\0b"),
        (read_json, float("inf")),
    ],
)
def test_a_key_that_was_tampered_with_is_refused(reader, value):
    forged = base64.urlsafe_b64encode(json.dumps(["x", value]).encode()).rstrip(b"=").decode()
    with pytest.raises(InvalidQuery):
        decode_cursor(forged, "x", [reader])
