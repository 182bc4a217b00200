"""Times and sizes in words."""

import pytest

from jobs.core.overlap.telling import bytes_told, seconds_told


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (512, "512 bytes"), (1000, "1 kB"), (2_200_000_000, "2.2 GB"), (3.5e12, "3.5 TB")],
)
def test_sizes_have_a_unit(count, words):
    assert bytes_told(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (2.5, "2.5 s"), (0.0015, "1.5 ms"), (3e-6, "3 µs")]
)
def test_times_have_a_unit(seconds, words):
    assert seconds_told(seconds) == words
