"""What browsers may do: only for our own pages, with the CSRF token, at a name we answer to."""

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import Job

BODY = b'{"kind": "study", "spec": {"workload": "tiny"}}'


@pytest.fixture
def browser(world):
    """A signed-in browser that checks CSRF as a real one has to."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(world.people["researcher"])

    def post(path="/api/v1/jobs", body=BODY, **headers):
        return client.post(path, body, content_type=headers.pop("kind", "application/json"), headers=headers)

    post.client = client
    return post


def csrf(browser):
    """Fetch a page of the site and return its CSRF token."""
    browser.client.get(reverse("tokens"))
    return {"X-CSRFToken": browser.client.cookies["csrftoken"].value}


def test_a_browser_with_the_csrf_token_may_submit(browser):
    assert browser(**csrf(browser)).status_code == 202


@pytest.mark.parametrize("headers", [{}, {"X-CSRFToken": ""}, {"X-CSRFToken": "x" * 64}])
def test_without_the_csrf_token_nothing_is_done(browser, headers):
    answer = browser(**headers)
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://testserver.evil.example"},
        {"Origin": "http://testserver:8000"},
    ],
)
def test_a_request_of_another_site_is_refused_even_with_the_csrf_token(browser, headers):
    answer = browser(**csrf(browser), **headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:forebay:problem:cross-site")
    assert not Job.objects.exists()


@pytest.mark.parametrize("headers", [{"Origin": "http://testserver"}, {"Sec-Fetch-Site": "same-origin"}])
def test_a_request_of_our_own_page_is_let_through(browser, headers):
    assert browser(**csrf(browser), **headers).status_code == 202


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_a_body_that_a_form_of_another_site_could_send_is_no_body(browser, kind):
    assert browser(kind=kind, **csrf(browser)).status_code == 415


def test_a_token_needs_no_csrf_token(world):
    client = Client(enforce_csrf_checks=True)
    header = {"Authorization": f"Bearer {world.token('researcher').text}"}
    assert (
        client.post("/api/v1/jobs", BODY, content_type="application/json", headers=header).status_code == 202
    )


@pytest.mark.parametrize("host", ["evil.example", "169.254.169.254", "localhost.evil.example", "", "a b"])
def test_a_host_that_is_not_ours_gets_nothing(world, host):
    answer = world.ask("viewer", "GET", "/api/v1/me", Host=host)
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert b"viewer" not in answer.content


def test_every_answer_forbids_framing_sniffing_and_foreign_scripts(world):
    for path in ("/api/v1/me", "/api/docs/", "/api/v1/none"):
        answer = world.ask("viewer", "GET", path)
        assert answer["X-Frame-Options"] == "DENY"
        assert answer["X-Content-Type-Options"] == "nosniff"
        policy = answer["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
        assert "unsafe-eval" not in policy


def test_the_docs_page_has_no_inline_script_and_needs_no_other_host(world):
    page = world.send("GET", "/api/docs/").content.decode()
    assert "<script>" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "/static/drf_spectacular_sidecar/" in page


def test_nobody_from_another_origin_may_read_answers(world):
    answer = world.ask("viewer", "GET", "/api/v1/me", Origin="https://evil.example")
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
