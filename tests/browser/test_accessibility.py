"""WCAG 2.2 AA as far as axe can tell, on every page, in both themes; and every page on a narrow screen."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from jobs.core.states import JobState

DESK, TELEPHONE = {"width": 1360, "height": 900}, {"width": 360, "height": 740}
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES = {
    "light": {"runOnly": {"type": "tag", "values": LEVELS}},
    # The other theme differs in nothing but colours.
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}},
}


def violations(page, theme="light"):
    """Return what axe finds: rule, and where."""
    found = Axe().run(page, options=RULES[theme]).response["violations"]
    return [
        (v["id"], node["html"][:200], node.get("failureSummary", "")[:300])
        for v in found
        for node in v["nodes"]
    ]


def fits(page, width):
    """Whether a page becomes as narrow as the screen; its charts take a moment to shrink."""
    for _ in range(150):
        if page.evaluate("document.documentElement.scrollWidth") <= width:
            return True
        page.wait_for_timeout(100)
    return False


def faults_of(page, home, paths):
    """Visit every path once; return what axe finds in both themes, and pages wider than a telephone."""
    found = []
    for path in paths:
        page.goto(home + path)
        charts = page.locator("#history, [data-figure]")
        if charts.count():
            expect(charts.locator(".word, .main-svg").first).to_be_attached()
        for theme in ("light", "dark"):
            # Without motion: halfway between two themes nothing has the contrast of either.
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found += [(path, theme, *violation) for violation in violations(page, theme)]
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(TELEPHONE)
        if not fits(page, TELEPHONE["width"]):
            found.append((path, "wider than a narrow screen"))
        page.set_viewport_size(DESK)
    return "\n".join(map(str, found))


def test_pages_for_people_who_are_signed_in(ada, team, demo, open_as):
    done = demo.study(ada, team, trials=60)
    running = demo.study(ada, team, trials=60, ended=20, state=JobState.RUNNING, name="running")
    empty = demo.study(ada, team, trials=5, ended=0, state=JobState.QUEUED, name="queued")
    page = open_as(ada, viewport=DESK)
    paths = (
        "/",
        "/?q=nothing-like-this",
        f"/studies/{done.pk}",
        f"/studies/{running.pk}",
        f"/studies/{empty.pk}",
        f"/studies/{done.pk}/trials/3",
        "/studies/new",
        f"/studies/new?from={done.pk}",
        "/devices",
        "/failures",
        "/audit",
        "/audit/verify",
        "/tokens",
        "/people",
        "/password",
        "/studies/00000000-0000-7000-8000-000000000000",
    )
    found = faults_of(page, page.url.rstrip("/"), paths)
    assert not found, found


def test_pages_of_training_jobs_and_their_recovery(ada, team, demo, open_as):
    job = demo.training(ada, team, slow_from=40)
    verdict = demo.incident(job)
    plan = demo.plan(job, verdict)
    page = open_as(ada, viewport=DESK)
    paths = (
        "/training",
        f"/training/{job.pk}",
        "/training/new",
        "/incidents",
        f"/incidents/{verdict.pk}",
        f"/reconfigurations/{plan.pk}",
        "/approvals",
        "/fleet",
        f"/fleet/nodes/{verdict.device.node_id}",
        f"/fleet/devices/{verdict.device_id}",
        "/failures/statistics",
        "/webhooks",
    )
    found = faults_of(page, page.url.rstrip("/"), paths)
    assert not found, found


def test_pages_for_people_who_are_not(ada, open_as):
    page = open_as(None, "/sign-in", viewport=DESK)
    found = faults_of(page, page.url.removesuffix("/sign-in"), ("/sign-in", "/login/used-up"))
    assert not found, found


def test_open_menus_and_dialogs(ada, team, demo, open_as):
    demo.study(ada, team, trials=10)
    page = open_as(ada, "/devices")
    page.locator("details.menu summary").first.click()
    found = violations(page)
    page.locator("details.menu summary").first.click()
    page.locator("[data-open=shortcuts]").click()
    found += violations(page)
    assert not found, found
