"""A trial's page."""

import pytest

from tuning.pages.trial import compared, difference


@pytest.mark.parametrize(
    ("value", "other", "text"),
    [
        (0.1, 0.1, "same"),
        (0.1, 0.01, "× 10"),
        (0.01, 0.1, "× 0.1"),
        (0.55, 0.5, "+0.05"),
        (0.5, 0.55, "−0.05"),
        (-1, 1, "−2"),
        (True, False, ""),
        ("sgd", "adam", ""),
        (None, 1, ""),
    ],
)
def test_a_difference_is_a_factor_where_values_are_far_apart(value, other, text):
    assert difference(value, other) == text


def test_the_page_compares_with_the_best_and_leads_to_the_target(as_, people, team, demo):
    job = demo.study(people["researcher"], team, trials=40)
    best = job.study.best_trial
    other = next(n for n in range(40) if n != best)
    page = as_("viewer").get(f"/studies/{job.pk}/trials/{other}")
    assert page.context["best"].number == best
    assert [row["name"] for row in page.context["config"]] == list(demo.SPACE)
    assert page.context["containers"][0].trials == [other]
    own = as_("viewer").get(f"/studies/{job.pk}/trials/{best}")
    assert own.context["is_best"]
    assert own.context["target"].trial.number == best
    assert f"/api/v1/artifacts/{own.context['target'].model_id}".encode() in own.content


def test_the_log_is_searched_on_the_server_and_stripped(as_, people, team, demo):
    job = demo.study(people["researcher"], team, trials=5)
    page = as_("viewer").get(f"/studies/{job.pk}/trials/1?log=WARNING")
    assert page.context["log"].splitlines() == ["warning: gradient norm 12.4 clipped esrever"] * 3
    assert "\x1b" not in page.content.decode()


def test_a_missing_parameter_is_listed(demo):
    class Row:
        def __init__(self, config):
            self.config = config

    rows = compared(Row({"a": 1}), Row({"a": 1, "b": 2}), ["b", "a"])
    assert [(row["name"], row["value"], row["is_same"]) for row in rows] == [
        ("b", None, False),
        ("a", 1, True),
    ]
