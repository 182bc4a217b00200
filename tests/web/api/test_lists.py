"""The rules that hold for every list."""

import pytest

LISTS = ["jobs", "devices", "workloads", "failure-events", "teams", "tokens", "audit", "jobs/{job}/trials",
         "jobs/{job}/events"]  # fmt: skip


@pytest.fixture(params=LISTS)
def address(request, job):
    return f"/api/v1/{request.param.replace('{job}', str(job.pk))}"


def test_a_list_is_items_and_the_address_of_the_next_page(world, address):
    body = world.ask("root", "GET", address).json()
    assert body["items"]
    assert body["next"] is None


def test_a_limit_out_of_range_is_refused(world, address):
    for limit in ("0", "501", "-1", "1e2", "many", "", "1" * 30, "٣", "1000000000"):
        answer = world.ask("root", "GET", f"{address}?limit={limit}")
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json"), limit
        assert answer.json()["errors"][0]["parameter"] == "limit"


def test_an_unknown_parameter_is_refused(world, address):
    for query in ("page=2", "offset=0", "limit=5&Limit=5", "state[]=x", "=", "%00=1"):
        answer = world.ask("root", "GET", f"{address}?{query}")
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:forebay:problem:invalid-query"), (
            query
        )


def test_a_repeated_parameter_is_refused(world, address):
    for query in ("limit=5&limit=6", "cursor=x&cursor=x"):
        assert "more than once" in world.ask("root", "GET", f"{address}?{query}").json()["detail"]


def test_a_cursor_that_is_none_is_refused(world, address):
    for cursor in ("x", "e30", "W10", "%00", "A" * 2001, "-1", ""):
        answer = world.ask("root", "GET", f"{address}?cursor={cursor}")
        assert (answer.status_code, answer.json()["errors"][0]["parameter"]) == (400, "cursor"), cursor


def test_one_row_at_a_time_the_pages_hold_what_one_page_holds(world, address):
    whole = world.ask("root", "GET", address).json()["items"]
    rows, following = [], f"{address}?limit=1"
    while following:
        page = world.ask("root", "GET", following).json()
        rows += page["items"]
        following = page["next"]
    volatile = {"last_used_at", "last_used_ip"}
    assert [{k: v for k, v in row.items() if k not in volatile} for row in rows] == [
        {k: v for k, v in row.items() if k not in volatile} for row in whole
    ]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [("jobs?state=done", "state"), ("jobs?kind=", "kind"), ("devices?state=ok", "state"),
     ("failure-events?job=17", "job"), ("audit?team=demo", "team"), ("jobs?name=" + "x" * 201, "name")],
)  # fmt: skip
def test_a_filter_that_makes_no_sense_is_named(world, query, parameter):
    answer = world.ask("root", "GET", f"/api/v1/{query}")
    assert (answer.status_code, answer.json()["errors"][0]["parameter"]) == (400, parameter)
