"""The first page in a browser."""

from django.db import transaction
from playwright.sync_api import expect

from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.lifecycle import lock_job, move_job


def test_an_empty_list_teaches_and_its_sample_button_starts_a_study(ada, team, demo, open_as, faults):
    demo.workload()
    page = open_as(ada)
    expect(page.get_by_role("heading", name="No studies yet")).to_be_visible()
    page.get_by_role("button", name="Run a sample study").click()
    expect(page.get_by_role("heading", name="first study")).to_be_visible()
    assert Job.objects.get().spec["trials"] == 12
    assert faults == []


def test_filters_stand_in_the_address_and_narrow_the_list(ada, team, demo, open_as, faults):
    demo.study(ada, team, trials=10, name="alpha")
    demo.study(ada, team, trials=10, name="beta", state=JobState.FAILED)
    page = open_as(ada)
    expect(page.locator("#studies tbody tr")).to_have_count(2)
    page.keyboard.press("/")
    page.keyboard.type("bet")
    expect(page.locator("#studies tbody tr")).to_have_count(1)
    assert "q=bet" in page.url
    page.reload()
    expect(page.locator("#studies tbody tr")).to_have_count(1)
    expect(page.locator("#studies tbody")).to_contain_text("beta")
    assert faults == []


def test_a_change_of_state_shows_without_reloading(ada, team, demo, open_as, faults):
    job = demo.study(ada, team, trials=10, ended=3, state=JobState.RUNNING)
    page = open_as(ada)
    expect(page.locator("[data-live-state]")).to_have_attribute("data-live-state", "open")
    expect(page.locator("#studies .badge")).to_have_text("running")
    with transaction.atomic():
        move_job(lock_job(job.pk), JobState.COMPLETED)
    expect(page.locator("#studies .badge")).to_have_text("completed")
    assert faults == []


def test_rows_can_be_walked_by_keyboard(ada, team, demo, open_as):
    demo.study(ada, team, trials=5, name="older")
    demo.study(ada, team, trials=5, name="newer")
    page = open_as(ada)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="older")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="newer")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()


def test_the_help_lists_shortcuts_and_can_switch_them_off(ada, team, demo, open_as):
    page = open_as(ada)
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    with page.expect_response("**/preferences"):
        page.get_by_label("Single-key shortcuts are on").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("n")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_hidden()
    ada.refresh_from_db()
    assert ada.preferences["shortcuts"] == "off"


def test_the_theme_is_applied_at_once_and_kept(ada, team, open_as):
    page = open_as(ada, color_scheme="light")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    with page.expect_response("**/preferences"):
        page.get_by_label("Colours").select_option("dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
