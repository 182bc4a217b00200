"""A researcher's first ten minutes, in a real browser."""

import re

import pytest
from playwright.sync_api import expect
from safetensors.torch import load_file

pytestmark = [pytest.mark.platform, pytest.mark.timeout(600)]
DONE_MS = 240_000


def test_from_the_printed_link_to_a_trained_model(platform, page, browser, tmp_path):
    page.get_by_role("link", name="New study").first.click()
    page.get_by_label("Name", exact=True).fill("my first study")
    page.get_by_label("Trials", exact=True).fill("6")
    page.get_by_label("Epochs of a trial").fill("3")
    page.get_by_label("Target models").fill("1")
    expect(page.locator("#review")).to_contain_text("valid")
    page.get_by_role("button", name="Submit study").click()
    expect(page.get_by_role("heading", name="my first study")).to_be_visible()
    address = page.url

    # It ends before the reader's eyes, without a reload.
    expect(page.locator("body")).to_contain_text(re.compile("6\\s+of 6"), timeout=DONE_MS)
    expect(page.get_by_text("completed").first).to_be_visible(timeout=DONE_MS)
    job = platform.wait(address.rpartition("/")[2], "completed")
    assert job["summary"]["best"]["metric"] > 0.3

    model = platform.api("GET", job["links"]["model"])
    (tmp_path / "model.safetensors").write_bytes(model.content)
    shapes = {name: tuple(tensor.shape) for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    assert (512, 512) in shapes.values()

    table = platform.api("GET", f"jobs/{job['id']}/trials.csv").text.splitlines()
    assert len(table) == 7
    other = browser.new_context().new_page()
    other.goto(address)
    expect(other).to_have_url(re.compile("sign-in.*next="))


def test_a_study_is_cancelled_and_run_again_with_one_change(platform, page):
    job_id = platform.submit(trials=40, epochs=20, scaling=1, fusion="off")
    page.goto(f"{platform.url}/studies/{job_id}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    assert platform.wait(job_id, "cancelled", seconds=120)["reason"] == "cancelled by admin"
    page.get_by_role("link", name="Rerun with change").click()
    page.get_by_label("Trials", exact=True).fill("2")
    page.get_by_label("Epochs of a trial").fill("1")
    page.get_by_role("button", name="Submit study").click()
    expect(page.get_by_text("rerun of an earlier study")).to_be_visible()
    again = platform.job(page.url.rpartition("/")[2])
    assert (again["spec"]["trials"], again["spec"]["scaling"]) == (2, 1)
    platform.wait(again["id"], "running", "completed")
    platform.api("POST", f"jobs/{again['id']}/cancel")
    platform.wait(again["id"], "cancelled", "completed")
