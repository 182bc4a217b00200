"""The decision on a plan in a browser: seen live, compared, approved by another, followed to its outcome."""

import re

from playwright.sync_api import expect

from cluster.core.roles import Role
from jobs.models import Reconfiguration
from jobs.services.reconfigurations import begin, execute_done, record_outcome
from telemetry.services import clear_verdict


def test_an_incident_from_the_verdict_to_the_outcome(ada, team, demo, open_as, faults):
    owner = demo.person("olga")
    demo.team_with(owner, Role.RESEARCHER)
    job = demo.training(owner, team, slow_from=40)
    page = open_as(ada, f"/training/{job.pk}")
    count = page.locator("#approval-count")
    expect(page.locator("#training-head [data-live-state=open]")).to_be_visible()
    expect(page.locator("#iterations .main-svg").first).to_be_visible()
    expect(count).to_have_text("")

    verdict = demo.incident(job)
    plan = demo.plan(job, verdict)
    expect(page.get_by_text("Slow device: ")).to_be_visible()
    expect(count).to_contain_text("1")
    page.get_by_role("link", name="Compare and decide").click()
    page.wait_for_url("**/incidents/**")
    expect(page.get_by_role("heading", name="Slow device: r1")).to_be_visible()
    page.locator("#series").scroll_into_view_if_needed()
    expect(page.locator("#series .main-svg").first).to_be_attached()
    expect(
        page.get_by_role("row", name=re.compile("Move micro-batches between replicas only"))
    ).to_be_visible()

    comment = page.get_by_label("Comment")
    comment.fill("looks right")
    page.get_by_role("heading", name="Why").click()
    clear_verdict(verdict_id=verdict.pk, reason="healthy again")
    expect(page.get_by_text("Cleared: healthy again")).to_be_visible()
    expect(comment).to_have_value("looks right")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("The job takes the new layout")).to_be_visible()
    expect(page.locator(".plan .badge", has_text="approved")).to_be_visible()
    expect(count).to_have_text("")
    row = Reconfiguration.objects.get(pk=plan.pk)
    assert (row.state, row.approver, row.comment) == ("approved", ada, "looks right")

    begin(reconfiguration_id=plan.pk)
    execute_done(
        reconfiguration_id=plan.pk, outcome={"phases": {"drain": 0.1, "transfer": 0.4}, "pause_s": 0.8}
    )
    record_outcome(reconfiguration_id=plan.pk, measured={"iteration_s": 0.57})
    expect(page.get_by_text("0.57 s measured, 0.55 s predicted")).to_be_visible()
    expect(page.locator(".plan .badge", has_text="executed")).to_be_visible()
    assert faults == []


def test_ones_own_plan_needs_another_admin_or_a_reason(ada, team, demo, open_as, faults):
    job = demo.training(ada, team, slow_from=40)
    plan = demo.plan(job, demo.incident(job))
    page = open_as(ada, "/approvals")
    page.get_by_role("link", name="Repartition").click()
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    page.get_by_text("Nobody else can: break the glass").click()
    page.get_by_role("button", name="Approve alone").click()
    expect(page.get_by_text("whoever asks does not approve")).to_be_visible()
    page.get_by_text("Nobody else can: break the glass").click()
    page.get_by_label("Why you approve your own request").fill("nobody else is awake")
    page.get_by_role("button", name="Approve alone").click()
    expect(page.get_by_text("Glass broken:", exact=True)).to_be_visible()
    assert Reconfiguration.objects.get(pk=plan.pk).break_glass == "nobody else is awake"
    assert faults == []


def test_the_form_of_a_training_job_is_checked_while_one_types(ada, team, demo, open_as, faults):
    demo.cores(2)
    page = open_as(ada, "/training/new")
    heads = page.get_by_label("Heads")
    heads.fill("5")
    expect(page.locator("#err-parameters-heads")).to_contain_text("5 does not divide the width of 64")
    expect(heads).to_have_attribute("aria-invalid", "true")
    heads.fill("4")
    page.get_by_label("Stages").fill("2")
    expect(page.locator("#review")).to_contain_text("1 replica of 2 stages, 2 ranks")
    expect(page.locator("#code-yaml")).to_contain_text("layers: 2")
    page.get_by_role("button", name="Start training").click()
    expect(page.get_by_role("heading", name="pydoc-gpt")).to_be_visible()
    expect(page.get_by_text("Faults are injected into jobs that run")).to_be_visible()
    assert faults == []
