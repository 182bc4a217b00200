"""The queue in a browser: an operator asks what if, changes it and drains a node; a researcher sees why."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from cluster.core.bodies import read_rehearsal
from cluster.core.roles import Role
from cluster.models import Allotment, BookedDevices, Coordinator, QueueEntry, Quota
from cluster.services.rehearsal_cluster import load_rehearsal
from jobs.core.body import parse_body
from jobs.services.coordination import coordinate
from jobs.services.submission import submit_job


def rehearsal(team, owner, name, **spec):
    """Submit a rehearsal job."""
    body = parse_body({"kind": "rehearsal", "name": name, "spec": {"kind": "a100", **spec}})
    return submit_job(body=body, team=team, owner=owner, actor=owner.username)


def busy_cluster(demo, team, ada):
    """Two nodes of four devices, one job that fills them and two that wait, one of another team."""
    nodes = [{"name": "sim", "count": 2, "devices": 4, "kind": "a100"}]
    load_rehearsal(body=read_rehearsal({"nodes": nodes, "rules": {"min_runtime_s": 0}}), actor="ada")
    grace = demo.person("grace")
    rivals = demo.team_with(grace, Role.RESEARCHER, "rivals")
    rehearsal(rivals, grace, "their training", duration_s=7200, devices=8)
    coordinate()
    rehearsal(team, ada, "long evaluation", duration_s=3600, devices=4)
    rehearsal(team, ada, "short evaluation", duration_s=60, devices=4)
    coordinate()


def test_an_operator_asks_what_if_changes_a_quota_and_drains_a_node(ada, team, demo, open_as, faults):
    busy_cluster(demo, team, ada)
    page = open_as(ada, "/queue?cluster=rehearsal")
    waiting = page.get_by_role("region", name="Waiting")
    expect(waiting).to_contain_text("needs 4 devices, 0 devices free")
    expect(page.get_by_role("region", name="Running")).to_contain_text("another team's rehearsal")

    page.goto(page.url.split("/queue")[0] + f"/quotas/{team.pk}")
    page.get_by_label("Guaranteed a100").fill("4")
    page.get_by_label("Preview on").select_option("rehearsal")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview")).to_contain_text("with this quota")
    expect(page.locator("#preview")).to_contain_text("long evaluation")
    expect(page.locator("#preview")).to_contain_text("earlier by")
    assert not Quota.objects.exists()  # asked, not done
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The quota of Demo holds from now on.")).to_be_visible()
    coordinate()
    assert QueueEntry.objects.get(label="long evaluation").state == "running"

    page.goto(page.url.split("/quotas")[0] + "/what-if?cluster=rehearsal")
    while page.locator("input[name=policies]:checked").count():
        page.locator("input[name=policies]:checked").first.uncheck()
    page.get_by_label("fifo-skip").check()
    page.get_by_label("sjf").check()
    page.get_by_role("button", name="Compare").click()
    table = page.get_by_role("region", name="The live queue, played forward")
    expect(table.get_by_role("row")).to_have_count(4)
    expect(table.get_by_role("row").nth(3)).to_contain_text("sjf")
    expect(page.locator("svg.strip").first).to_be_visible()
    assert Coordinator.objects.get(pk="rehearsal").policy == "fair"

    page.goto(page.url.split("/what-if")[0] + "/queue?cluster=rehearsal")
    page.get_by_text("Policy and hold").click()
    page.get_by_label("Policy", exact=True).select_option("gavel")
    page.get_by_role("button", name="Use it from the next decision").click()
    expect(page.get_by_text("The next decision is taken by gavel.")).to_be_visible()
    expect(page.locator("dl.tiles")).to_contain_text("Max-min fair time shares")
    page.goto(page.url.replace("/queue", "/capacity"))
    page.get_by_text("Reserve", exact=True).click()
    page.get_by_label("Name").fill("release")
    page.get_by_label("Devices", exact=True).fill("4")
    page.get_by_label("Until, UTC").fill("2999-01-01T12:00")
    page.get_by_role("button", name="Reserve devices").click()
    expect(page.get_by_role("region", name="Reserved")).to_contain_text("4 a100")
    assert BookedDevices.objects.get().team == team

    page.goto(page.url.split("/capacity")[0] + "/devices")
    node = page.get_by_role("region", name="sim-0")
    node.get_by_label("Actions for the node sim-0").click()
    node.get_by_label("Reason, for all devices of sim-0").fill("new firmware")
    node.get_by_role("button", name="Drain all").click()
    expect(page.get_by_text("4 devices of sim-0 now draining.")).to_be_visible()
    coordinate()
    assert not Allotment.objects.filter(device__node__name="sim-0").exists()
    assert faults == []


def test_a_researcher_sees_why_a_job_waits_who_is_ahead_and_when_it_starts(ada, team, demo, open_as, faults):
    busy_cluster(demo, team, ada)
    grace = demo.person("joan")
    demo.team_with(grace, Role.RESEARCHER)
    page = open_as(grace, "/queue?cluster=rehearsal")
    row = page.get_by_role("row").filter(has_text="short evaluation")
    expect(row).to_contain_text("needs 4 devices, 0 devices free")
    expect(row).to_contain_text("long evaluation (4)")
    expect(row).to_contain_text("in 1 h")
    expect(page.get_by_text("their training")).to_have_count(0)  # another team's
    expect(page.get_by_role("button", name="Hold")).to_have_count(0)
    page.goto(page.url.replace("/queue", "/capacity"))
    expect(page.get_by_role("img", name="held").first).to_be_visible()
    assert faults == []


def test_the_pages_of_the_queue_keep_the_rules_of_accessibility(ada, team, demo, open_as, faults):
    busy_cluster(demo, team, ada)
    page = open_as(ada, "/queue?cluster=rehearsal")
    site = page.url.split("/queue")[0]
    rules = {
        "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]}
    }
    found = []
    for path in (
        "/queue?cluster=rehearsal",
        "/queue",
        "/capacity?cluster=rehearsal",
        "/quotas",
        f"/quotas/{team.pk}",
        "/what-if?cluster=rehearsal",
        "/accounting",
        "/devices",
    ):
        page.goto(site + path)
        violations = Axe().run(page, options=rules).response["violations"]
        found += [(path, v["id"], node["html"][:200]) for v in violations for node in v["nodes"]]
    assert not found, "\n".join(map(str, found))
    assert faults == []
