"""An operator takes a device out of service while a study wants it."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.platform, pytest.mark.timeout(600)]


def test_a_cordoned_device_takes_nothing_new_until_it_is_given_back(platform, page):
    devices = platform.items("devices")
    for device in devices:
        answer = platform.api("POST", f"devices/{device['id']}/cordon", json={"reason": "fan noise"})
        assert answer.status_code == 200, answer.text
    page.goto(f"{platform.url}/devices")
    expect(page.get_by_text("fan noise").first).to_be_visible()

    job_id = platform.submit(trials=2, epochs=1, scaling=1)
    waiting = lambda: "0 devices free" in (platform.job(job_id)["reason"] or "")  # noqa: E731
    assert platform.eventually(waiting, 90), platform.job(job_id)
    assert platform.job(job_id)["state"] == "queued"
    for device in devices:
        platform.api("POST", f"devices/{device['id']}/uncordon", json={"reason": "fan replaced"})
    assert platform.wait(job_id, "running", "completed", "failed")["state"] in ("running", "completed")
    platform.api("POST", f"jobs/{job_id}/cancel")
    platform.wait(job_id, "cancelled", "completed")
