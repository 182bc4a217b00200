"""The page of an overlap job in a browser: charts, and what-if questions answered in place."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from cluster.services.leases import take_lease
from jobs.core.body import parse_body
from jobs.core.overlap import chrome_trace, make_plan, plan_document
from jobs.core.overlap.assembly import assemble
from jobs.core.overlap.clusters import read_cluster
from jobs.core.overlap.operations import COLLECTIVE, WAIT, CapturedProgram, Operation, Ref, TensorFact
from jobs.core.overlap.questions import compare_policies
from jobs.core.overlap.tiling import tile
from jobs.services.overlaps import claim_overlap, finish_overlap
from jobs.services.submission import submit_job

ROWS, WIDTH = 4096, 4096


def document():
    """What the worker's process answers for a chain of products and all-reduces."""
    fact = TensorFact((ROWS, WIDTH), 2)
    operations, at = [], "x"
    for layer in range(4):
        for name, target, args, trait in (
            ("mm", "aten.mm.default", (Ref(at), Ref("w")), frozenset()),
            (
                "ar",
                "_c10d_functional.all_reduce.default",
                (Ref(f"mm{layer}"), "sum", "tp"),
                frozenset({COLLECTIVE}),
            ),
            ("wait", "_c10d_functional.wait_tensor.default", (Ref(f"ar{layer}"),), frozenset({WAIT})),
        ):
            operations.append(Operation(f"{name}{layer}", target, args, results=(fact,), traits=trait))
        at = f"wait{layer}"
    inputs = {"x": fact, "w": TensorFact((WIDTH, WIDTH), 2)}
    program = CapturedProgram(inputs, tuple(operations), Ref(at))
    tiles = {count: tile(program, {"x": 0}, count) for count in (1, 2)}
    works = {n: assemble(made.program, made.sizes, lambda group: range(8)) for n, made in tiles.items()}
    graph = works[2].on(read_cluster("a100x8").cluster)
    plan = make_plan(graph, "round-robin")
    whole = make_plan(works[1].on(read_cluster("a100x8").cluster), "serial")
    verification = {"ranks": 4, "max_rel_error": 3e-7, "reordered_equals_serial": True, "passed": True}
    return plan_document(plan) | {
        "program": "tp-transformer",
        "cluster": "a100x8",
        "tiles": 2,
        "simulated": True,
        "warnings": [],
        "untiled": [{"node": "dropout", "reason": "it draws random numbers"}],
        "verification": {**verification, "size": "rehearsal"},
        "untiled_makespan": whole.given.makespan_s,
        "untiled_peak_bytes": whole.given.peak_bytes,
        "policies": compare_policies(graph, 1000),
        "trace": chrome_trace(graph, plan.chosen.steps),
        "graphs": {str(n): work.to_json() for n, work in works.items()},
    }


@pytest.fixture
def running_job(ada, team, settings, tmp_path):
    """A job that a worker has begun, and how it ends."""
    settings.ARTIFACT_DIR = tmp_path
    body = parse_body({"kind": "overlap", "spec": {"program": "tp-transformer", "tiles": 2}})
    job = submit_job(body=body, team=team, owner=ada, actor="ada")
    held = take_lease(name=f"overlap:{job.pk}", owner="test", seconds=600)
    claim_overlap(job_id=job.pk, held=held)
    return job, lambda: finish_overlap(job_id=job.pk, held=held, document=document())


@pytest.fixture
def overlap_job(running_job):
    job, finish = running_job
    finish()
    return job


def test_the_page_follows_by_itself_when_the_plan_is_there(ada, running_job, open_as):
    job, finish = running_job
    page = open_as(ada, f"/overlaps/{job.pk}")
    expect(page.get_by_role("heading", name="Being worked out")).to_be_visible()
    expect(page.locator("[data-live-state]").first).to_have_text("live")
    finish()
    expect(page.locator("#what-if")).to_be_visible()


def test_charts_are_drawn_and_a_question_changes_them(ada, overlap_job, open_as, server):
    page = open_as(ada)
    page.goto(f"{server.url}/overlaps/{overlap_job.pk}")
    for chart in ("before", "after", "memory"):
        page.locator(f"#{chart}").scroll_into_view_if_needed()
        expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
    expect(page.locator("#after")).to_contain_text("exposed communication")
    expect(page.locator("#h-policies")).to_be_visible()
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag22aa"]}})
    assert not found.response["violations"], found.generate_report()
    before = page.locator("[data-note-of=after]").inner_text()
    page.locator("#w-bandwidth").fill("0.25")
    expect(page.locator("[data-note-of=after]")).not_to_have_text(before)
    expect(page).to_have_url(re.compile("bandwidth=0.25"))
    expect(page.locator("output[for=w-bandwidth]")).to_have_text("0.25")
    page.locator("#w-budget").fill("1")
    expect(page.locator("#overlap-answer")).to_contain_text("no plan of this policy fits")
