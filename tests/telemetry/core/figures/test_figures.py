"""Charts, by their data; Plotly's own validation accepts each of them."""

import math
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest

from telemetry.core.figures import (
    PALETTES,
    Attempt,
    Curve,
    Importance,
    Lane,
    Span,
    TargetMark,
    best_so_far,
    importance_bars,
    learning_curves,
    paint,
    timeline,
)
from telemetry.core.figures.best_so_far import improvements
from telemetry.core.figures.scales import thin, value_scale
from telemetry.core.figures.timeline import merged

CSS = Path(__file__).parents[4] / "frontend/static/css/tokens.css"
ATTEMPTS = [Attempt(0, 1.0, 0.5), Attempt(1, 2.0, 0.4), Attempt(2, 3.0, math.nan), Attempt(3, 4.0, 0.9)]


def trace(figure, name):
    """Return the trace of a figure with this name."""
    return next(t for t in figure["data"] if t["name"] == name)


@pytest.mark.parametrize(
    "figure",
    [
        best_so_far(ATTEMPTS, metric="accuracy", mode="max", targets=[TargetMark(3, 4.0, 5.0, 0.95)]),
        best_so_far([], metric="loss", mode="min", by="number"),
        learning_curves([Curve("trial 1", [(1, 0.1), (2, None)], is_chosen=True)], metric="loss", mode="min"),
        importance_bars([Importance("lr", 0.8, 0.1), Importance("momentum", 0.2, 0.05)]),
        timeline([Lane("cpu:0", [Span(0, 1, "trial", "trial #0"), Span(1, 3, "target", "target of #0")])]),
    ],
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plotly_accepts_every_figure_in_both_themes(figure, theme):
    painted = paint(figure, theme)
    go.Figure(data=painted["data"], layout=painted["layout"])
    assert not re.search(r"'\$", str(painted))


def test_the_palette_is_that_of_the_style_sheet():
    declared = dict(re.findall(r"--([\w-]+): light-dark\((#\w+, #\w+)\)", CSS.read_text()))
    for name, light in PALETTES["light"].items():
        assert declared[name] == f"{light}, {PALETTES['dark'][name]}"


def test_the_best_line_steps_at_improvements_and_runs_to_the_end():
    figure = best_so_far(ATTEMPTS, metric="accuracy", mode="max")
    assert trace(figure, "best so far")["x"] == [1.0, 4.0]
    assert trace(figure, "best so far")["y"] == [0.5, 0.9]
    later = best_so_far([*ATTEMPTS, Attempt(4, 9.0, 0.1)], metric="accuracy", mode="max")
    assert trace(later, "best so far")["x"] == [1.0, 4.0, 9.0]


def test_a_metric_that_is_not_a_number_is_neither_best_nor_drawn():
    figure = best_so_far([Attempt(0, 1.0, math.nan), Attempt(1, 2.0, 1.0)], metric="loss", mode="min")
    assert trace(figure, "trials")["customdata"] == [1]


def test_zero_is_a_legal_best_value():
    assert improvements([0.3, 0.0, 0.1], "min") == [0, 1]
    assert improvements([-1.0, 0.0], "max") == [0, 1]


def test_many_trials_are_thinned_and_the_figure_says_so():
    attempts = [Attempt(i, float(i), math.sin(i) + i / 1000) for i in range(30_000)]
    figure = best_so_far(attempts, metric="accuracy", mode="max")
    drawn = set(trace(figure, "trials")["customdata"])
    assert len(drawn) <= 2000
    assert set(improvements([a.metric for a in attempts], "max")) <= drawn
    assert "of 30000 trials drawn" in figure["note"]


@pytest.mark.parametrize(
    ("count", "limit", "keep"), [(5, 10, []), (100, 10, []), (100, 10, [3, 99]), (100, 1, [50])]
)
def test_thinning_keeps_order_ends_and_what_it_must(count, limit, keep):
    chosen = thin(count, limit, keep)
    assert chosen == sorted(set(chosen))
    assert set(keep) <= set(chosen)
    assert len(chosen) <= max(limit, len(keep)) or count <= limit


def test_a_diverged_loss_does_not_squash_the_axis():
    scale = value_scale([0.1 + 0.001 * i for i in range(99)] + [1e30], mode="min", title="loss")
    low, high = scale.axis["range"]
    assert scale.outside == 1
    assert high < 10
    assert low < 0.1


def test_a_loss_over_many_decades_gets_a_logarithmic_axis():
    assert value_scale([10.0**-i for i in range(6)], mode="min", title="loss").axis["type"] == "log"


def test_hostile_names_are_escaped_in_labels_and_hover():
    hostile = '<b onmouseover="x">lr</b>\u202e'
    figures = [
        best_so_far(ATTEMPTS, metric=hostile, mode="max"),
        learning_curves([Curve(hostile, [(1, 0.5)], is_best=True)], metric=hostile, mode="max"),
        importance_bars([Importance(hostile, 1.0, 0.0)]),
        timeline([Lane(hostile, [Span(0, 1, "trial", hostile)])]),
    ]
    for figure in figures:
        assert "<b " not in str(figure)
        assert "\u202e" not in str(figure)


def test_a_value_that_was_not_finite_is_a_gap_in_its_curve():
    figure = learning_curves(
        [Curve("trial 1", [(1, 0.5), (2, math.inf), (3, 0.4)])], metric="loss", mode="min"
    )
    assert figure["data"][0]["y"] == [0.5, None, 0.4]
    assert "∞" in figure["data"][0]["text"][1]


def test_the_most_important_parameter_stands_on_top():
    bars = importance_bars([Importance("a", 0.2, 0), Importance("b", 0.7, 0), Importance("c", 0.1, 0)])[
        "data"
    ][0]
    assert bars["y"] == ["c", "a", "b"]


def test_crowded_lanes_share_bars_that_cover_the_same_time():
    spans = [Span(i * 1.0, i + 0.9, "failed" if i % 10 == 0 else "trial", f"#{i}") for i in range(1000)]
    joined = merged(spans, 50.0)
    assert len(joined) <= 25
    assert sum(s.size for s in joined) == 1000
    assert sum(s.failed for s in joined) == 100
    assert (joined[0].start_s, joined[-1].end_s) == (0.0, 999.9)


def test_targets_are_never_merged_into_trials():
    spans = [Span(0, 1, "trial", "a"), Span(1, 2, "target", "b"), Span(2, 3, "trial", "c")]
    assert [s.kind for s in merged(spans, 100.0)] == ["trial", "target", "trial"]
