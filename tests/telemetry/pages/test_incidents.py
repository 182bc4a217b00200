"""Incidents, the plans that answer them, and the decision."""

import json

import pytest

from jobs.core.states import ReconfigurationState
from jobs.services.reconfigurations import begin, execute_done, expire_due, record_outcome
from journal.models import AuditEntry
from telemetry.core.states import VerdictKind
from telemetry.services import clear_verdict


def decide(browser, plan, decision, **fields):
    plan.refresh_from_db()
    return browser.post(
        f"/reconfigurations/{plan.pk}/{decision}", {"version": str(plan.version), **fields}, follow=True
    )


def test_an_incident_says_what_where_since_when_and_why(verdict, plan, as_):
    page = as_("viewer").get(f"/incidents/{verdict.pk}").content.decode()
    for words in (
        "Slow device: r1", "99\u202f%", "3 iterations after the first sign",
        "needs 2.5 times as long as the median of its peers".capitalize(), "Plan proposed: repartition",
        "r0 has layers 1–3 instead of layers 1–2", "replica 1 runs 5 micro-batches instead of 4",
        "Move micro-batches between replicas only", "29.09% slower than the plan",
        "cannot run: nobody is dead",
        "proven to be the fastest",
    ):  # fmt: skip
        assert words in page, words
    drawn = json.loads(as_("viewer").get(f"/incidents/{verdict.pk}/series").content)
    assert [trace["name"] for trace in drawn["data"]] == ["median of its peers", verdict.subject_key]


@pytest.mark.parametrize("kind", list(VerdictKind))
def test_every_kind_of_verdict_has_a_page(job, demo, as_, kind):
    verdict = demo.incident(job, kind=kind)
    assert as_("viewer").get(f"/incidents/{verdict.pk}").status_code == 200
    assert as_("viewer").get(f"/incidents?kind={kind}").context["page"].total == 1


@pytest.mark.parametrize("state", list(ReconfigurationState))
def test_a_plan_has_a_page_in_every_state(plan, as_, state, people):
    plan.state, plan.approver = state, people["other-admin"]
    plan.outcome = {"phases": {"drain": 0.2}, "pause_s": 0.9, "iteration_s": 0.56}
    plan.save()
    page = as_("viewer").get(f"/reconfigurations/{plan.pk}").content.decode()
    assert "0.56 s measured, 0.55 s predicted" in page
    assert as_("viewer").get("/approvals").status_code == 200


@pytest.mark.parametrize(
    ("who", "words", "offers"),
    [
        ("viewer", "Waits for an admin of demo", []),
        ("operator", "Waits for an admin of demo", []),
        ("other-admin", "Comment", ["approve", "reject"]),
        ("admin", "break the glass", ["approve", "reject"]),
    ],
)
def test_the_decision_is_offered_to_those_who_may_take_it(plan, verdict, as_, who, words, offers):
    page = as_(who).get(f"/incidents/{verdict.pk}").content.decode()
    assert words in page
    for decision in ("approve", "reject"):
        assert (f"/reconfigurations/{plan.pk}/{decision}" in page) == (decision in offers)


@pytest.mark.parametrize(
    ("who", "status"), [(None, 302), ("stranger", 404), ("viewer", 403), ("operator", 403)]
)
def test_nobody_else_decides(plan, as_, who, status):
    path = f"/reconfigurations/{plan.pk}/approve"
    assert as_(who).post(path, {"version": str(plan.version)}).status_code == status
    plan.refresh_from_db()
    assert plan.state == ReconfigurationState.PROPOSED


def test_another_admin_approves_with_a_comment(plan, verdict, as_, people):
    page = decide(as_("other-admin"), plan, "approve", comment="looks right", next=f"/incidents/{verdict.pk}")
    assert page.redirect_chain[-1][0] == f"/incidents/{verdict.pk}"
    plan.refresh_from_db()
    assert (plan.state, plan.approver) == ("approved", people["other-admin"])
    assert "“looks right”" in page.content.decode()
    assert AuditEntry.objects.get(action="reconfiguration.approve").actor == "other-admin"


def test_whoever_asked_does_not_approve_without_breaking_the_glass(plan, as_):
    assert b"whoever asks does not approve" in decide(as_("admin"), plan, "approve").content
    page = decide(as_("admin"), plan, "approve", break_glass="nobody else is awake")
    plan.refresh_from_db()
    assert (plan.state, plan.break_glass) == ("approved", "nobody else is awake")
    assert b"nobody else is awake" in page.content


def test_the_requester_may_reject(plan, as_):
    decide(as_("admin"), plan, "reject", comment="wait for the spare")
    plan.refresh_from_db()
    assert (plan.state, plan.comment) == ("rejected", "wait for the spare")


@pytest.mark.parametrize("version", ["", "0", "99", "1e3", "9" * 30])
def test_a_decision_on_another_version_is_not_taken(plan, as_, version):
    answer = as_("other-admin").post(
        f"/reconfigurations/{plan.pk}/approve", {"version": version}, follow=True
    )
    assert b"Not done" in answer.content
    plan.refresh_from_db()
    assert plan.state == ReconfigurationState.PROPOSED


def test_a_second_decision_comes_too_late(plan, as_):
    seen = str(plan.version)
    decide(as_("other-admin"), plan, "approve")
    path = f"/reconfigurations/{plan.pk}/reject"
    assert b"has moved on" in as_("admin").post(path, {"version": seen}, follow=True).content


@pytest.mark.parametrize("onward", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_a_decision_leads_to_pages_of_this_site_only(plan, as_, onward):
    answer = as_("other-admin").post(
        f"/reconfigurations/{plan.pk}/reject", {"version": str(plan.version), "next": onward}
    )
    assert answer["Location"] == f"/reconfigurations/{plan.pk}"


def test_an_expired_plan_says_so_and_offers_nothing(plan, verdict, as_):
    plan.expires_at = plan.created_at
    plan.save()
    page = as_("other-admin").get(f"/incidents/{verdict.pk}").content.decode()
    assert "This plan expired" in page
    assert "/approve" not in page
    expire_due()
    assert (
        "it was not decided on in time"
        in as_("viewer").get(f"/incidents/{verdict.pk}").content.decode().lower()
    )


def test_the_story_goes_from_the_first_sign_to_the_outcome(plan, verdict, as_, people):
    decide(as_("other-admin"), plan, "approve", comment="ok")
    begin(reconfiguration_id=plan.pk)
    execute_done(reconfiguration_id=plan.pk, outcome={"phases": {"drain": 0.1}, "pause_s": 0.8})
    record_outcome(reconfiguration_id=plan.pk, measured={"iteration_s": 0.57})
    clear_verdict(verdict_id=verdict.pk, reason="its layout changed")
    context = as_("viewer").get(f"/incidents/{verdict.pk}").context
    titles = [moment.title for moment in context["story"]]
    assert titles == [
        "First sign", "Verdict: slow device", "Plan proposed: repartition", "Plan approved",
        "Reconfiguration begun", "Plan executed", "Cleared",
    ]  # fmt: skip
    assert [moment.at for moment in context["story"]] == sorted(moment.at for moment in context["story"])
    assert context["plans"][0]["off"] == pytest.approx(0.57 / 0.55 - 1)


def test_the_inbox_counts_what_one_may_decide(plan, as_):
    for who, count in (("other-admin", 1), ("admin", 1), ("viewer", 0), ("stranger", 0)):
        assert as_(who).get("/approvals").context["waiting"].count() == count
        shown = as_(who).get("/approvals/count").content.decode()
        assert ("waiting for you" in shown) == bool(count)
        assert ("waiting for you" in as_(who).get("/tokens").content.decode()) == bool(count)
    assert as_("viewer").get("/approvals").context["others"].count() == 1
    decide(as_("other-admin"), plan, "reject")
    context = as_("admin").get("/approvals").context
    assert (context["waiting"].count(), len(context["decided"])) == (0, 1)


def test_foreign_text_stays_text(job, demo, verdict, as_):
    plan = demo.plan(job, verdict, facts={})
    plan.reason = plan.comment = demo.HOSTILE
    plan.state = "superseded"
    plan.save()
    page = as_("viewer").get(f"/incidents/{verdict.pk}").content.decode()
    assert "<img src=x" not in page
    assert "\u202e" not in page
