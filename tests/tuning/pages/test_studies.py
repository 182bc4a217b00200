"""The list of studies."""

from jobs.core.states import JobState
from tuning.queries.overview import studies_page


def test_nobody_is_asked_to_sign_in_and_comes_back_to_the_same_view(as_):
    answer = as_(None).get("/?state=failed&q=x")
    assert answer.status_code == 302
    assert answer["Location"] == "/sign-in?next=/%3Fstate%3Dfailed%26q%3Dx"


def test_a_team_sees_its_own_studies_and_a_stranger_none(as_, people, team, demo):
    demo.study(people["researcher"], team, trials=3, name="zebra study")
    assert b"zebra study" in as_("viewer").get("/").content
    assert b"zebra study" not in as_("stranger").get("/").content


def test_what_a_viewer_cannot_do_is_not_offered(as_, people, team, demo):
    demo.workload()
    assert b"Run a sample study" not in as_("viewer").get("/").content
    assert b"Your role is viewer" in as_("viewer").get("/").content
    assert b"Run a sample study" in as_("researcher").get("/").content


def test_filters_combine_and_counts_are_of_what_matches(as_, people, team, demo):
    for name, state in (("a1", JobState.FAILED), ("a2", JobState.COMPLETED), ("b", JobState.FAILED)):
        demo.study(people["researcher"], team, trials=3, name=name, state=state)
    browser = as_("viewer")
    assert [j.name for j in browser.get("/?q=a&state=failed").context["page"].items] == ["a1"]
    page = browser.get("/?q=a").context["page"]
    assert page.total == 2
    assert page.by_state["failed"] == 1
    assert browser.get("/?owner=me").context["page"].total == 0
    assert browser.get("/?workload=digits-mlp&team=demo").context["page"].total == 3


def test_long_lists_come_in_pages_that_meet(as_, people, team, demo):
    for i in range(7):
        demo.study(people["researcher"], team, trials=2, name=f"s{i}")
    seen, cursor = [], None
    while True:
        page = studies_page(people["viewer"], {}, cursor=cursor, limit=3)
        seen += [job.name for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [f"s{i}" for i in reversed(range(7))]


def test_nonsense_in_the_address_is_ignored(as_):
    for query in ("?cursor=zzz", "?state=nonsense", "?q=%00", "?team=<script>"):
        assert as_("viewer").get(f"/{query}").status_code == 200
