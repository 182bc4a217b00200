"""Verdicts in words that need no knowledge of the detector."""

import re
from pathlib import Path

import pytest

import telemetry.core.detector.detector as detector
from telemetry.core.evidence import MEANINGS, TESTS, detection_words, evidence_rows, meaning
from telemetry.core.states import VerdictKind


def test_every_kind_has_a_meaning():
    assert set(MEANINGS) == set(VerdictKind)
    assert all(meaning(kind).endswith(".") for kind in VerdictKind)


def test_every_test_of_the_detector_has_words():
    folder = Path(detector.__file__).parent
    text = "\n".join(path.read_text() for path in folder.glob("*.py"))
    names = set(re.findall(r'Evidence\(\s*"([a-z_]+)"', text)) | set(re.findall(r'test = "([a-z_]+)"', text))
    assert names
    assert names <= set(TESTS)


def test_a_test_without_words_keeps_its_name_and_its_numbers():
    (row,) = evidence_rows([{"test": "new_test<b>", "value": 3.14159, "threshold": 2, "samples": 7}])
    assert row == ("New test<b>", "3.14 against 2.", 7, True)
    (row,) = evidence_rows([{"test": "cusum", "value": None, "threshold": None, "samples": None}])
    assert row.met is None


@pytest.mark.parametrize(
    ("first", "detected", "seconds", "words"),
    [
        (40, 43, 6.0, "3 iterations after the first sign, 6.00 s later"),
        (40, 41, None, "1 iteration after the first sign"),
        (None, 41, None, ""),
    ],
)
def test_how_long_it_took(first, detected, seconds, words):
    assert detection_words(first, detected, seconds) == words
