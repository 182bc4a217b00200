"""How bubbles were used over time: a line per rank, broken where nobody was there or lending was stopped."""

from telemetry.core.figures.bubble_use import Use, use_over_time


def test_a_line_breaks_where_nobody_uses_the_bubbles_and_where_lending_is_stopped() -> None:
    moments = [
        Use("r0", 60.0, 0.4, True),
        Use("r1", 60.0, 0.9, True),
        Use("r0", 58.0, 0.5, True),
        Use("r0", 6.0, 0.3, True),
        Use("r0", 4.0, 0.0, False),
        Use("r0", 2.0, None, True),
    ]
    drawn = use_over_time(moments)
    lines = {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in drawn["data"]}
    assert lines["r0"] == [(-60, 0.4), (-58, 0.5), (-7, None), (-6, 0.3), (-4, None), (-2, None)]
    assert lines["r1"] == [(-60, 0.9)]
    assert "lending is stopped" in drawn["data"][0]["text"][4]
    assert all(trace["connectgaps"] is False for trace in drawn["data"])


def test_names_of_strangers_are_plain_text() -> None:
    drawn = use_over_time([Use("<b>x</b>", 1.0, 0.5, True)])
    assert drawn["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;"
