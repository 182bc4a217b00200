"""A study's page in a browser: charts, the table, brushes, curves, actions."""

import re

import pytest
from playwright.sync_api import expect

from jobs.core.states import JobState


@pytest.fixture
def page(ada, team, demo, open_as):
    """The page of a finished study of 150 trials."""
    job = demo.study(ada, team, trials=150)
    return open_as(ada, f"/studies/{job.pk}")


def test_every_chart_is_drawn_under_the_strict_policy(page, faults):
    for name in ("history", "curves", "importance", "makespan", "rungs", "twins"):
        page.locator(f"#{name}").scroll_into_view_if_needed()
        expect(page.locator(f"#{name}[data-drawn] .main-svg").first).to_be_attached()
        assert page.locator(f"#{name}").get_attribute("aria-label")
    expect(page.locator("#parallel canvas")).to_be_visible()
    assert "5-fold" in page.locator("[data-note-of=importance]").inner_text()
    assert faults == []


def test_charts_follow_the_theme_without_fetching_again(page):
    expect(page.locator("#history[data-drawn]")).to_be_attached()
    line = page.locator("#history .scatterlayer .js-line").last
    light = line.evaluate("e => getComputedStyle(e).stroke")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/figures/" in request.url else None)
    page.get_by_label("Colours").select_option("dark")
    page.wait_for_function(
        "([e, was]) => getComputedStyle(e).stroke !== was", arg=[line.element_handle(), light]
    )
    assert [url for url in asked if url.endswith("history")] == []


def test_the_table_sorts_filters_and_pages_on_the_server(page, faults):
    rows = page.locator("#trial-table tbody tr[id]")
    expect(rows).to_have_count(100)
    page.get_by_role("link", name="accuracy", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("accuracy")
    first = float(rows.first.locator("td").nth(3).inner_text())
    expect(page.locator("tr.best")).to_have_count(1)
    page.get_by_role("link", name=re.compile("^Show .* more")).click()
    expect(rows).to_have_count(150)
    page.get_by_label("Filter").fill(f"accuracy_is_not_a_column>={first}")
    expect(page.locator("#trial-error")).to_contain_text("neither a column nor a parameter")
    page.get_by_label("Filter").fill("state=failed")
    expect(page.locator("#trial-count")).to_contain_text("that match")
    expect(page.locator("#trial-error")).to_be_hidden()
    assert all("failed" in text for text in rows.all_inner_texts())
    assert "q=state%3Dfailed" in page.url
    assert "state=failed" in page.locator("#trial-export a").first.get_attribute("href")
    assert faults == []


def test_going_to_a_number_and_choosing_columns(page):
    page.get_by_label("Go to trial number").fill("#120")
    page.get_by_label("Go to trial number").press("Enter")
    expect(page.locator("#trial-table tbody tr").first).to_have_attribute("id", "trial-120")
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="gamma").uncheck()
    expect(page.locator("#trial-table thead")).not_to_contain_text("gamma")


def test_a_brush_filters_the_table_and_keeps_what_was_typed(page):
    page.get_by_label("Filter").fill("state=completed")
    grip = page.locator("[data-axis=lr]")
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + box["height"] * 0.25)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * 0.6, steps=6)
    with page.expect_response(re.compile(r"/trials\?.*lr%3E")):
        page.mouse.up()
    expect(page.get_by_label("Filter")).to_have_value(re.compile(r"^state=completed lr>=0\.0\d+ lr<=0\.\d+$"))
    low, high = (float(n) for n in re.findall(r"[<>]=([\d.]+)", page.get_by_label("Filter").input_value()))
    page.wait_for_function(
        """([low, high]) => {
          const cells = [...document.querySelectorAll("#trial-table tbody tr[id] td:nth-child(6)")];
          return cells.length > 0 && cells.every((c) => low <= +c.textContent && +c.textContent <= high);
        }""",
        arg=[low, high],
    )
    page.get_by_role("button", name="Clear brushes").click()
    expect(page.get_by_label("Filter")).to_have_value("state=completed")


def test_a_brush_can_be_moved_by_keyboard(page):
    grip = page.locator("[data-axis=momentum]")
    grip.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Filter")).to_have_value(re.compile("momentum>="))
    expect(page.locator("[data-axis=momentum]")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Filter")).to_have_value("")


def test_a_chosen_trial_gets_its_curve(page):
    expect(page.locator("#curves[data-drawn]")).to_be_attached()
    with page.expect_response(re.compile("figures/curves.trials=3")):
        page.get_by_label("Show the curve of trial 3", exact=True).check()
    expect(page.locator("#chosen-trials")).to_have_text("and #3")
    expect(page.locator("#curves .legend")).to_contain_text("trial 3")


def test_hostile_text_stays_text(page, faults):
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    expect(page.locator("#failures")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("img").count() == 0
    assert "\u202e" not in page.content()
    assert faults == []


def test_a_running_study_is_cancelled_after_a_question(ada, team, demo, open_as):
    job = demo.study(ada, team, trials=20, ended=5, state=JobState.RUNNING)
    page = open_as(ada, f"/studies/{job.pk}")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Cancel").click()
    job.refresh_from_db()
    assert job.cancel_asked_at is None
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("is being cancelled")).to_be_visible()
    job.refresh_from_db()
    assert job.cancel_asked_at is not None


def test_the_page_can_be_read_without_scripts(ada, team, demo, open_as):
    job = demo.study(ada, team, trials=150)
    page = open_as(ada, f"/studies/{job.pk}?q=state=failed", java_script_enabled=False)
    assert page.locator("#trial-table tbody tr[id]").count() > 0
    page.get_by_role("link", name="accuracy", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("accuracy")
    page.get_by_role("link", name="#", exact=False).first.click()
    expect(page.get_by_role("heading", name="Configuration")).to_be_visible()
