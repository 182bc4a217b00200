"""A verdict's evidence and its causes in words that need no knowledge of the detector."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telemetry.core.states import VerdictKind
from telemetry.core.wording import duration_text, number_text, printable

# kind -> what it means, and what it does not
MEANINGS: dict[VerdictKind, str] = {
    VerdictKind.WORKLOAD_NOISE: "Iteration times vary, and the lengths of the sequences explain it. "
    "Nothing is broken.",
    VerdictKind.STAGE_IMBALANCE: "Every rank of this stage needs longer than the other stages: it has more "
    "work, not a slower device.",
    VerdictKind.GLOBAL_SLOWDOWN: "All ranks became slower together. No single device is to blame: look at "
    "what they share (power, cooling, storage, network).",
    VerdictKind.DEVICE_FAIL_SLOW: "This rank needs longer for the same work than its peers and than it did "
    "before. The workload does not explain it.",
    VerdictKind.LINK_FAIL_SLOW: "Computing is as fast as ever, but messages between these ranks take longer.",
    VerdictKind.INTERMITTENT: "This rank turned slow and recovered several times. It is kept apart so that "
    "the layout does not change back and forth.",
    VerdictKind.FAIL_STOP: "Neither a heartbeat nor progress came from this rank any more.",
    VerdictKind.MONITOR_FAULT: "The monitor itself stood still or its clock jumped. No rank is to blame.",
    VerdictKind.INSUFFICIENT_EVIDENCE: "Something is slower, but what was measured cannot tell what.",
}
# test -> (name, what its value says; {value} and {threshold} are filled in)
TESTS: dict[str, tuple[str, str]] = {
    "same_stage_peers": (
        "Peers of the same stage",
        "needs {value} times as long as the median of its peers; more than {threshold} is slow",
    ),
    "same_stage_pair": (
        "The two ranks of the stage",
        "needs {value} times as long as the other one; more than {threshold} is slow",
    ),
    "against_own_past": (
        "Its own past",
        "needs {value} times as long as it did itself; more than {threshold} is slow",
    ),
    "fleet_against_own_past": (
        "All ranks against their past",
        "the median rank needs {value} times as long as before; more than {threshold} is slow",
    ),
    "stage_against_other_stages": (
        "Stages against each other",
        "the stage needs {value} times its share; more than {threshold} is uneven",
    ),
    "cusum": ("Change point (CUSUM)", "the evidence adds up to {value}; {threshold} is enough"),
    "peers": ("Peers to compare with", "{value} peers were measured; {threshold} are enough to tell"),
    "cells_of_stage": ("Ranks of the stage", "{value} ranks hold this stage; {threshold} are enough to tell"),
    "share_of_ranks_slower": (
        "How many ranks are slower",
        "{value} of all ranks became slower; more than {threshold} is not one device",
    ),
    "workload_model_mape": (
        "Fit of the workload model",
        "the model is off by {value} on average; beyond {threshold} it is not used to judge",
    ),
    "variation_observed": ("Variation as measured", "times vary by {value}; {threshold} is calm"),
    "variation_after_workload_model": (
        "Variation that the workload leaves",
        "{value} is left when sequence lengths are accounted for; below {threshold} they explain it",
    ),
    "variation_after_busiest_compute": (
        "Variation that the busiest rank leaves",
        "{value} is left when its compute is accounted for; below {threshold} it explains it",
    ),
    "silence_s": ("Silence", "no sign of life for {value} s; {threshold} s is too long"),
    "process_gone": ("Process", "the process of this rank is gone"),
    "usual_interval_s": ("Usual interval", "signs of life came every {value} s"),
    "share_of_fleet_silent_at_once": (
        "Ranks silent at once",
        "{value} of all ranks fell silent together; beyond {threshold} the monitor is to blame",
    ),
    "monitor_clock_gap_s": ("The monitor's clock", "it jumped by {value} s; {threshold} s is too much"),
    "onsets": ("Onsets", "the {value}. onset on this rank; {threshold} make it intermittent"),
}


class Row(NamedTuple):
    """One test in words. `met` says whether its value is beyond its threshold."""

    name: str
    sentence: str
    samples: int | None
    met: bool | None


def meaning(kind: str) -> str:
    """Return what a kind of verdict means."""
    return MEANINGS[VerdictKind(kind)]


def evidence_rows(evidence: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a verdict's evidence in words; tests that have no words of their own keep their name."""
    return [_row(item) for item in evidence]


def _row(item: Mapping[str, Any]) -> Row:
    test, value, threshold = str(item.get("test", "")), item.get("value"), item.get("threshold")
    name, words = TESTS.get(
        test, (printable(test).replace("_", " ").capitalize(), "{value} against {threshold}")
    )
    sentence = words.format(value=number_text(value, 3), threshold=number_text(threshold, 3))
    met = None
    if isinstance(value, int | float) and isinstance(threshold, int | float):
        met = value >= threshold
    return Row(name, f"{sentence[0].upper()}{sentence[1:]}.", item.get("samples"), met)


def detection_words(first_step: int | None, detected_step: int | None, seconds: float | None) -> str:
    """Return how long it took from the first slow sample to the verdict."""
    parts = []
    if first_step is not None and detected_step is not None:
        steps = detected_step - first_step
        parts.append(f"{steps} iteration{'' if steps == 1 else 's'} after the first sign")
    if seconds is not None:
        parts.append(f"{duration_text(seconds)} later")
    return ", ".join(parts)
