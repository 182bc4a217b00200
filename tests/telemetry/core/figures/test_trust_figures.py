"""Charts of rungs, costs and widths; Plotly accepts each of them."""

import math
import re

import plotly.graph_objects as go
import pytest

from telemetry.core.figures import (
    Lane,
    Layer,
    Link,
    Mark,
    Pair,
    Share,
    Span,
    agreement,
    paint,
    rung_ladder,
    share_points,
    spending_bar,
    timeline,
    width_lines,
)

MARKS = [
    Mark(0, 3, 0.9, "went on"),
    Mark(1, 3, 0.2, "stopped", "rank 2 of 2 at epoch 3, where the best 1 go on"),
    Mark(2, 3, math.nan, "ended"),
    Mark(0, 9, 0.95, "waiting"),
]
LANES = [Lane("cpu:0", [Span(0, 1, "fused", "c0")]), Lane("cpu:1", [Span(1.5, 3, "trial", "c1")])]
LAYERS = [Layer("0", [1, 8], [0.1, 0.1], 0.0, True), Layer("1", [1, 8], [None, 0.8], None, False)]


@pytest.mark.parametrize(
    "figure",
    [
        rung_ladder(MARKS, rungs=(3, 9), metric="accuracy", mode="max"),
        timeline(LANES, [Link("cpu:0", 1, "cpu:1", 1.5, "split", "c1 split off c0")]),
        width_lines(LAYERS),
        agreement([Pair(3, 0.5, 0.6)], metric="accuracy", narrow="of the surrogate", wide="at full width"),
        spending_bar({"search": 3.0, "idle": 1.0, "profiling": 0.0}),
        share_points([Share(0, "c0", 4, 32, 0.2), Share(1, "c0", 4, 64, 0.3)], {32: 0.9}),
    ],
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plotly_accepts_every_figure_in_both_themes(figure, theme):
    painted = paint(figure, theme)
    go.Figure(data=painted["data"], layout=painted["layout"])
    assert not re.search(r"'\$", str(painted))


def test_the_ladder_has_a_trace_per_fate_and_says_why():
    data = rung_ladder(MARKS, rungs=(3, 9), metric="accuracy", mode="max")["data"]
    assert [trace["name"] for trace in data] == ["stopped here", "went on", "waiting for a verdict"]
    assert "rank 2 of 2" in data[0]["text"][0]
    assert [round(x) for trace in data for x in trace["x"]] == [0, 0, 1]


def test_shares_of_the_bar_are_of_the_whole():
    data = spending_bar({"search": 3.0, "idle": 1.0})["data"]
    assert [(trace["name"], trace["x"]) for trace in data] == [
        ("training of trials 75.0%", [3.0]), ("idle 25.0%", [1.0])
    ]  # fmt: skip


def test_layers_that_fail_stand_out_and_are_named():
    data = width_lines(LAYERS)["data"]
    assert [(trace["name"], trace["showlegend"]) for trace in data] == [("0", False), ("1", True)]
    assert "diverges" in data[1]["text"][0]
