"""The panel of a training job's bubbles, its charts, the switch, and where a study runs."""

import pytest

from jobs.models import Job
from tuning.models import BubbleUse, Container, Lending
from tuning.services.bubbles import add_sample, rest_lending


@pytest.fixture
def training(people, team, demo):
    return demo.training(people["researcher"], team)


@pytest.fixture
def study(people, team, demo):
    return demo.study(people["researcher"], team, trials=4)


@pytest.fixture
def used(study, training):
    """The training job, whose ranks 0 and 1 lend to the study."""
    for rank in (0, 1):
        sample = {
            "epoch": 1, "covers_s": 2.0, "lending": True, "waited_s": 1.0, "lent_s": 0.9, "used_s": 0.45,
            "leaked_s": 0.0, "utilisation": 0.45, "bubbles": 12, "in_pieces": 0,
            "decision": {"action": "keep", "reason": "slowdown +0.40%, limit 2.00%"},
            "slowdown": {"value": 0.004, "low": -0.002, "high": 0.011, "lent": 90, "controls": 22},
            "slots": [
                {"slot": 8, "expected_s": 0.02, "median_s": 0.025, "lent_s": 0.9, "used_s": 0.45, "seen": 12}
            ],
            "skipped": [{"slot": 8, "rule": "step", "count": 3, "reason": "g: a step takes 25 ms <b>"}],
            "guests": [{"name": "g", "run": "c0", "trials": 8, "steps": 50, "step_s": 4e-3, "stopped": 0}],
        }  # fmt: skip
        board = f"job-{training.pk}-{rank}"
        add_sample(
            study=study,
            board=board,
            lender=training.pk,
            rank=rank,
            device=None,
            sample=sample,
            exclusive_s=0.4,
        )
    return training


def text(answer) -> str:
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_panel_says_what_is_used_what_is_skipped_and_what_it_costs(as_, used) -> None:
    page = text(as_("viewer").get(f"/training/{used.pk}/bubbles"))
    for words in ("in use", "+0.4", "−0.2", "the others, at the end", "25 ms", "8 trials", "limit", "3 ×"):
        assert words in page, words
    assert "&lt;b&gt;" in page
    assert "Stop lending" not in page


def test_the_page_of_a_training_job_has_a_place_for_it(as_, training) -> None:
    page = text(as_("viewer").get(f"/training/{training.pk}"))
    assert f"/training/{training.pk}/bubbles" in page
    assert "none has" in text(as_("viewer").get(f"/training/{training.pk}/bubbles"))


def test_a_rank_that_has_not_waited_since_the_last_look_is_no_reason_to_fail(as_, used) -> None:
    for use in BubbleUse.objects.all():
        use.sample |= {"utilisation": None, "guests": [], "slowdown": None}
        use.slots, use.waited_s, use.used_s, use.watched_s = {}, 0.0, 0.0, 0.0
        use.save()
    page = text(as_("viewer").get(f"/training/{used.pk}/bubbles"))
    assert "not known yet" in page
    assert "no container" in page


def test_lanes_of_trials_stand_between_the_ranks(as_, used) -> None:
    drawn = as_("viewer").get(f"/training/{used.pk}/bubbles/timeline").json()
    guest = next(trace for trace in drawn["data"] if trace["name"].startswith("trials of studies"))
    assert guest["y"] == ["trials beside r0", "trials beside r1"]
    assert guest["x"] == [pytest.approx(0.5 * 0.03)] * 2
    plain = as_("viewer").get(f"/training/{used.pk}/bubbles/timeline?by=simulated").json()
    assert "trials of studies" not in str(plain)


def test_the_use_of_each_rank_is_drawn_over_time(as_, used, training) -> None:
    drawn = as_("viewer").get(f"/training/{used.pk}/bubbles/use").json()
    assert {trace["name"]: trace["y"] for trace in drawn["data"]} == {"r0": [0.45], "r1": [0.45]}


def test_an_operator_stops_lending_and_allows_it_again(as_, used) -> None:
    operator = as_("operator")
    assert "Stop lending" in text(operator.get(f"/training/{used.pk}/bubbles"))
    operator.post(f"/training/{used.pk}/bubbles/switch", {"lending": "off"})
    page = text(operator.get(f"/training/{used.pk}/bubbles"))
    assert "stopped by operator" in page
    assert "Lend again" in page
    operator.post(f"/training/{used.pk}/bubbles/switch", {"lending": "on"})
    assert not Lending.objects.get().switched_off


def test_a_researcher_does_not(as_, used) -> None:
    assert (
        as_("researcher").post(f"/training/{used.pk}/bubbles/switch", {"lending": "off"}).status_code == 403
    )
    assert not Lending.objects.exists()


def test_an_automatic_stop_is_shown_with_its_reason(as_, used) -> None:
    rest_lending(job_id=used.pk, reason="slowdown +4.10% (+3.00% to +5.00%), limit 2.00%")
    page = text(as_("viewer").get(f"/training/{used.pk}/bubbles"))
    assert "rests until" in page
    assert "Stopped by itself: slowdown +4.10%" in page


def test_a_job_that_lends_nothing_says_so(as_, training) -> None:
    Job.objects.filter(pk=training.pk).update(spec={**training.spec, "lend_bubbles": False})
    assert "lend_bubbles: false" in text(as_("operator").get(f"/training/{training.pk}/bubbles"))


def test_a_study_says_in_whose_bubbles_it_runs(as_, study, training) -> None:
    Job.objects.filter(pk=study.pk).update(state="running")
    Container.objects.filter(job=study).update(end_s=1.0)
    Container.objects.create(
        job=study, run="cx", trials=[0], device_label=f"bubble:job-{training.pk}-1", start_s=2.0
    )
    page = text(as_("viewer").get(f"/studies/{study.pk}/head"))
    assert "Runs in the bubbles of" in page
    assert f"/training/{training.pk}#bubbles" in page
    Job.objects.filter(pk=study.pk).update(substate="waiting for bubbles")
    Container.objects.filter(job=study).update(end_s=3.0)
    assert "no job lends any now" in text(as_("viewer").get(f"/studies/{study.pk}/head"))
