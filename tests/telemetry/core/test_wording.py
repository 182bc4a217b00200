"""Numbers and foreign text as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.core.wording import bytes_text, duration_text, number_text, plotly_text, printable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.0, "0"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (0.97834512, "0.97835"),
        (-0.5, "−0.5"),
        (1e-7, "1e−7"),
        (123456789.0, "1.2346e8"),
        (9999, "9999"),
        (50_000, "50\u202f000"),
        ("adam", "adam"),
        (True, "True"),
    ],
)
def test_numbers(value, text):
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0 s"),
        (0.421, "0.42 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min"),
        (184, "3 min 4 s"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
        (-3, "−3.00 s"),
    ],
)
def test_spans_use_their_two_largest_units(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (2_700_000, "2.57 MiB"), (8 << 30, "8 GiB")],
)
def test_sizes_are_binary(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\u202eb\u2066c", "abc"),
        ("one\r\ntwo\rthree\tfour", "one\ntwo\nthree\tfour"),
        ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "link"),
        ("nul\0 bell\a", "nul bell"),
        ("żółw 漢字 🙂", "żółw 漢字 🙂"),
    ],
)
def test_colours_controls_and_bidirectional_overrides_go(text, left):
    assert printable(text) == left


@given(st.text())
def test_a_plotly_label_holds_no_markup_and_is_short(text):
    label = plotly_text(text)
    assert "<" not in label
    assert ">" not in label
    assert len(label.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")) <= 80
