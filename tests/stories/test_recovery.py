"""A rank turns slow: it is named, and mended while the job runs by a plan that somebody else approves."""

import re
from collections import Counter

import pytest
from playwright.sync_api import expect

from workers.trainer.parallel.data import Packer, load_corpus

pytestmark = [pytest.mark.platform, pytest.mark.timeout(900)]
PATIENCE_MS = 240_000
LEARNED = 26  # steps after which a rank's own past is known
FACTOR = "10"


def test_a_slow_rank_is_mended_by_a_plan_that_a_second_person_approves(platform, page, browser):
    job_id = started(page)
    grace = second_admin(platform, page, browser)
    at_work = lambda: platform.job(job_id).get("summary", {}).get("step", 0) >= LEARNED  # noqa: E731
    assert platform.eventually(at_work, 240), platform.job(job_id)

    page.goto(f"{platform.url}/training/{job_id}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_label("Rank", exact=True).select_option("1")
    page.get_by_label("Factor", exact=True).fill(FACTOR)
    page.get_by_role("button", name="Inject").click()
    expect(page.get_by_text("Rank 1: slow is on its way.")).to_be_visible()

    # The verdict comes to the open page and says which rank, how slow, and why.
    alarm = page.locator("#training-head .bar.bad").first
    expect(alarm).to_contain_text(re.compile("Slow device: .*replica 0 stage 1 rank 1"), timeout=PATIENCE_MS)
    alarm.get_by_role("link", name="Evidence").click()
    expect(page.get_by_role("heading", name="Slow device: r1")).to_be_visible()
    expect(page.locator("#h-evidence").locator("xpath=../..")).to_contain_text("times as long as")
    (verdict,) = platform.items(f"verdicts?job={job_id}&kind=device_fail_slow")
    assert verdict["subject"]["rank"] == 1
    assert verdict["slowdown"] > 1.5

    plan = decided(platform, grace, job_id)
    # Whoever asked sees it happen without touching the page.
    shown = page.locator(".plan", has_text=plan["plan_digest"][:10])
    expect(shown.locator(".outcome")).to_contain_text(re.compile("measured,.*predicted"), timeout=PATIENCE_MS)
    expect(shown.locator(".outcome")).to_contain_text("without the plan", timeout=PATIENCE_MS)
    measured(platform, job_id, plan["id"])
    nothing_lost(platform, job_id)
    platform.api("POST", f"jobs/{job_id}/cancel")
    platform.wait(job_id, "cancelled")


def started(page) -> str:
    """Start a job on two pipelines of two stages by the form; return its id."""
    page.get_by_role("link", name="Training").first.click()
    page.get_by_role("link", name="New training job").first.click()
    page.get_by_label("Name", exact=True).fill("tiny GPT")
    page.get_by_label("Steps", exact=True).fill("100000")
    page.get_by_label("Replicas", exact=True).fill("2")
    page.get_by_label("Stages", exact=True).fill("2")
    page.get_by_label("Rebalance", exact=True).select_option("an admin decides")
    expect(page.locator("#review")).to_contain_text("2 replicas of 2 stages, 4 ranks")
    page.get_by_role("button", name="Start training").click()
    expect(page.get_by_role("heading", name="tiny GPT")).to_be_visible()
    return page.url.rpartition("/")[2]


def second_admin(platform, page, browser):
    """Let grace in and return her own window, signed in by the link."""
    page.get_by_role("link", name="People").click()
    page.get_by_label("Name", exact=True).fill("grace")
    page.get_by_role("radio", name=re.compile("^admin")).check()
    page.get_by_role("button", name="Let in").click()
    link = page.locator("#link-text").inner_text()
    window = browser.new_context(viewport={"width": 1380, "height": 900}).new_page()
    window.set_default_timeout(60_000)
    window.goto(link)
    window.get_by_role("link", name="Approvals").click()
    expect(window.get_by_text("Nothing waits for your decision.")).to_be_visible()
    return window


def decided(platform, window, job_id: str) -> dict:
    """Approve the plan that appears in a person's inbox; return it as it was proposed."""
    window.locator("#approvals tbody a").first.click(timeout=PATIENCE_MS)
    waiting = platform.items(f"reconfigurations?job={job_id}&state=proposed")
    (plan,) = waiting
    shown = window.locator(".plan", has_text=plan["plan_digest"][:10])
    rows = shown.locator(".candidates tbody tr")
    expect(rows.first).to_contain_text("proposed")
    assert rows.count() >= 3
    expect(shown.locator(".candidates")).to_contain_text(re.compile("do nothing", re.IGNORECASE))
    shown.get_by_label("Comment").fill("rank 1 it is")
    shown.get_by_role("button", name="Approve", exact=True).click()
    expect(window.get_by_text("The job takes the new layout")).to_be_visible()
    return plan


def measured(platform, job_id: str, plan_id: str) -> None:
    """The job is faster than it was under the fault, about as fast as it was said to become."""
    row = platform.api("GET", f"reconfigurations/{plan_id}").json()
    assert (row["state"], row["approver"], row["comment"]) == ("executed", "grace", "rank 1 it is")
    after = row["outcome"]["iteration_s"]
    # The fault costs so much that neighbours on the machine cannot hide it, nor that it is gone.
    assert after < 0.6 * row["baseline_iteration_s"], row
    assert 1 / 4 < after / row["predicted_iteration_s"] < 4, row
    low, high = row["facts"]["interval_s"]
    assert low <= row["predicted_iteration_s"] <= high
    timeline = platform.api("GET", f"jobs/{job_id}/timeline").json()
    kinds = {lane["id"]: {row["kind"] for row in lane["intervals"]} for lane in timeline["lanes"]}
    assert {"start", "layout", "reconfiguration"} <= kinds["job"]
    assert {"forward", "backward", "bubble"} <= kinds["r0"]


def nothing_lost(platform, job_id: str) -> None:
    """Every step is committed once, with exactly the tokens of the samples whose turn it was."""
    spec = platform.job(job_id)["spec"]
    events = platform.items(f"jobs/{job_id}/events?limit=500")
    rows = [row for event in events if event["kind"] == "training.progress" for row in event["data"]["steps"]]
    steps = [row["step"] for row in rows]
    assert Counter(steps) == Counter(range(1, len(steps) + 1))
    shape = spec["parameters"]
    packer = Packer(load_corpus(shape["context"]), shape["microbatch_tokens"], spec["seed"])
    cursor = 0
    for row in rows:
        batches, cursor = packer.pack(cursor, spec["microbatches"])
        assert row["tokens"] == sum(packer.tokens(batch) for batch in batches), row["step"]
