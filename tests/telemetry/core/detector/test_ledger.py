"""The book of verdicts: incidents, recoveries, flapping."""

from telemetry.core.detector import Subject, Verdict, VerdictKind
from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.verdicts import Evidence

KIND, RANK = VerdictKind.DEVICE_FAIL_SLOW, Subject(3)


def incident(step, slowdown=1.5):
    return Verdict(KIND, RANK, slowdown, step, step + 2, 0.9, [Evidence("cusum", 1.0, 0.5, 3)])


def flap(ledger, times):
    for number in range(times):
        ledger.open(incident(10 * number, 1.5 + number / 10))
        ledger.clear(KIND, RANK)


def test_an_incident_that_goes_on_is_not_opened_twice():
    ledger = Ledger()
    ledger.open(incident(1))
    ledger.open(incident(2))
    assert [v.first_step for v in ledger.verdicts] == [1]
    assert ledger.any_fault_open


def test_a_second_onset_is_a_second_incident():
    ledger = Ledger()
    flap(ledger, 2)
    assert [(v.first_step, v.state) for v in ledger.verdicts] == [(0, "cleared"), (10, "cleared")]
    assert not ledger.any_fault_open


def test_many_onsets_stay_one_verdict_that_counts_them():
    ledger = Ledger()
    flap(ledger, 50)
    (verdict,) = ledger.verdicts
    assert (verdict.kind, verdict.state, verdict.first_step) == ("intermittent", "open", 0)
    assert verdict.evidence[0].value == 50
    assert verdict.slowdown == 1.7
