"""The submit form in a browser."""

from playwright.sync_api import expect

from jobs.models import Job


def test_faults_appear_beside_their_fields_while_typing(ada, team, demo, open_as, faults):
    demo.workload()
    page = open_as(ada, "/studies/new")
    page.get_by_label("Lowest lr").fill("0")
    expect(page.locator("#err-space-0-low")).not_to_be_empty()
    expect(page.get_by_label("Lowest lr")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Trials", exact=True).fill("-3")
    expect(page.locator("#err-trials")).to_contain_text("whole number")
    expect(page.locator("#review")).to_contain_text("2 to fix")
    page.get_by_label("Lowest lr").fill("0.01")
    page.get_by_label("Trials", exact=True).fill("30")
    expect(page.locator("#review")).to_contain_text("valid")
    expect(page.locator("#err-trials")).to_be_empty()
    assert faults == []


def test_the_study_is_shown_as_yaml_curl_and_python(ada, team, demo, open_as):
    demo.workload()
    page = open_as(ada, "/studies/new")
    page.get_by_label("Type of batch_size").select_option("choice")
    page.get_by_label("Values of batch_size").fill("64")
    expect(page.locator("#code-yaml")).to_contain_text("values: [64]")
    page.get_by_role("tab", name="Python").click()
    expect(page.locator("#code-python")).to_contain_text("'values': [64]")
    page.get_by_label("Trials", exact=True).fill("31")
    expect(page.locator("#code-python")).to_contain_text("31")
    page.get_by_role("tab", name="Python").press("ArrowLeft")
    expect(page.locator("#code-curl")).to_contain_text("--data-binary")


def test_a_dry_run_starts_nothing_and_submitting_starts_one(ada, team, demo, open_as, faults):
    demo.workload()
    page = open_as(ada, "/studies/new")
    page.get_by_label("Name", exact=True).fill("from the form")
    page.get_by_label("Scheduler").select_option("asha")
    page.get_by_label("Grace").fill("2")
    with page.expect_response("**/studies/new/check"):
        page.get_by_role("button", name="Dry run").click()
    assert Job.objects.count() == 0
    expect(page.locator("#review")).to_contain_text("valid")
    page.get_by_role("button", name="Submit study").click()
    expect(page.get_by_role("heading", name="from the form")).to_be_visible()
    job = Job.objects.get()
    assert job.spec["scheduler"] == {"name": "asha", "grace": 2, "reduction": 3}
    assert faults == []


def test_rerun_with_change_starts_from_what_was_asked_then(ada, team, demo, open_as):
    job = demo.study(ada, team, trials=25, name="the first")
    page = open_as(ada, f"/studies/{job.pk}")
    page.get_by_role("link", name="Rerun with change").click()
    expect(page.get_by_label("Trials", exact=True)).to_have_value("25")
    page.get_by_label("Trials", exact=True).fill("26")
    page.get_by_role("button", name="Submit study").click()
    expect(page.get_by_text("rerun of an earlier study")).to_be_visible()
    rerun = Job.objects.exclude(pk=job.pk).get()
    assert rerun.rerun_of_id == job.pk
    assert rerun.spec["trials"] == 26
    assert rerun.spec["scheduler"] == job.spec["scheduler"]


def test_only_the_bounds_of_a_distribution_are_shown(ada, team, demo, open_as):
    demo.workload()
    page = open_as(ada, "/studies/new")
    expect(page.get_by_label("Step of lr")).to_be_hidden()
    page.get_by_label("Type of lr").select_option("qloguniform")
    expect(page.get_by_label("Step of lr")).to_be_visible()
    expect(page.locator("#err-space-0-q")).not_to_be_empty()
