"""How much of the bubbles of each rank was used, over the last minutes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import SERIES, Figure
from telemetry.core.wording import duration_text, plotly_text

GAP_S = 10.0  # without a sample for so long nobody uses the bubbles
DASHES = ("solid", "dash", "dot", "dashdot")


class Use(NamedTuple):
    """A moment of a rank's bubbles: seconds ago, the share of its waiting that was used, whether it lends."""

    lane: str
    ago_s: float
    share: float | None
    lends: bool


def use_over_time(moments: Sequence[Use]) -> Figure:
    """Return a line per rank, from long ago to now; where lending was stopped there is none."""
    lanes = list(dict.fromkeys(moment.lane for moment in moments))[:32]
    data: list[dict[str, Any]] = []
    for index, lane in enumerate(lanes):
        mine = _with_gaps([moment for moment in moments if moment.lane == lane])
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plotly_text(lane, 40),
                "x": [-moment.ago_s for moment in mine],
                "y": [moment.share if moment.lends else None for moment in mine],
                "text": [f"{plotly_text(lane, 40)}<br>{_words(moment)}" for moment in mine],
                "hoverinfo": "text",
                "connectgaps": False,
                "line": {
                    "width": 1.8,
                    "color": SERIES[index % len(SERIES)],
                    "dash": DASHES[index // len(SERIES) % len(DASHES)],
                },
            }
        )
    layout = {
        "xaxis": {"title": {"text": "seconds before now"}},
        "yaxis": {
            "title": {"text": "share of the waiting that was used"},
            "range": [0, 1.02],
            "tickformat": ".0%",
        },
        "showlegend": True,
    }
    return {"data": data, "layout": layout, "note": ""}


def _with_gaps(moments: Sequence[Use]) -> list[Use]:
    """Return moments with an empty one wherever nothing was seen for a while: nobody was there."""
    found: list[Use] = []
    for moment in moments:
        if found and found[-1].ago_s - moment.ago_s > GAP_S:
            found.append(Use(moment.lane, moment.ago_s + 1.0, None, True))
        found.append(moment)
    return found


def _words(moment: Use) -> str:
    if not moment.lends:
        return "lending is stopped"
    used = "nothing known" if moment.share is None else f"{moment.share:.0%} used"
    return f"{used}, {duration_text(moment.ago_s)} ago"
