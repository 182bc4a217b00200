"""The charts of training jobs."""

import plotly.graph_objects as go
import pytest

from telemetry.core.figures import paint
from telemetry.core.figures.failure_counts import failure_counts
from telemetry.core.figures.iterations import MOST_POINTS, Mark, Step, iteration_times, loss_curve
from telemetry.core.figures.pipeline import idle_words, measured_track, pipeline_timeline
from telemetry.core.figures.raw_series import raw_series
from workers.training.book import raw_chunks

STEPS = [
    Step(i, 0.4, 0.38 if i < 5000 else None, float("nan") if i == 7 else 3.0, i // 3000) for i in range(6000)
]
ROW = {
    "chunks": [
        {"type": "F", "microbatch": 0, "stage": 0, "seconds": 0.5},
        {"type": "B", "microbatch": 0, "stage": 0, "seconds": 2.0},
    ],
    "bubbles": [{"slot": 0, "seconds": 0.5}, {"slot": 1, "seconds": 1.0}, {"slot": 2, "seconds": 1.0}],
}
SLOW = {"steps": [1, 2], "subject": [0.1, None], "peers": {"peers <b>": [0.1, 0.1]}}


def plotly(figure):
    """Plotly itself accepts a figure."""
    painted = paint(figure)
    return go.Figure(data=painted["data"], layout=painted["layout"])


@pytest.mark.parametrize(
    "figure",
    [
        iteration_times(STEPS, [Mark(5, "incident", "incident"), Mark(9, "new layout", "change")]),
        loss_curve(STEPS),
        pipeline_timeline([measured_track("r0", ROW)]),
        raw_series(**SLOW, name="r1", unit="s", first_step=1, detected_step=2),
        failure_counts(["2026-01-01T00:00:00"], {"actor.lost": [2]}, "hour"),
    ],
)
def test_plotly_accepts_every_figure(figure):
    assert plotly(figure).data


def test_long_runs_are_thinned_and_say_so():
    drawn = iteration_times(STEPS)
    assert len(drawn["data"][0]["x"]) <= MOST_POINTS + 1
    assert 3000 in drawn["data"][0]["x"], "the first step of a layout is never lost"
    assert drawn["note"].startswith(f"{len(drawn['data'][0]['x'])} of 6000")
    assert loss_curve(STEPS)["note"] == "1 step had a loss that is not finite."


def test_bubbles_are_named_by_where_they_stand():
    track = measured_track("r0", ROW)
    assert [(p.kind, p.start_s, p.end_s) for p in track.pieces] == [
        ("fill", 0.0, 0.5), ("F", 0.5, 1.0), ("stall", 1.0, 2.0), ("B", 2.0, 4.0), ("drain", 4.0, 5.0),
    ]  # fmt: skip
    assert idle_words([track]) == "50% of the ranks' time are bubbles."
    assert measured_track("r1", {"rank": 1}).pieces == []


def test_what_a_driver_keeps_of_an_iteration_can_be_drawn():
    chunk = {"type": "F", "microbatch": 0, "stage": 0, "seconds": 0.25, "tokens": 3, "cpu_seconds": 0.2}
    event = {"chunks": [chunk], "bubbles": [{"slot": 0, "seconds": 0.5, "before": "F0"}]}
    track = measured_track("r0", raw_chunks(event))
    assert [(p.kind, p.start_s, p.end_s) for p in track.pieces] == [("fill", 0.0, 0.5), ("F", 0.5, 0.75)]
