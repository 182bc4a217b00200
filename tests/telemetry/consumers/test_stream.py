"""The live stream against a real PostgreSQL: replay, resume, reset, refusal, slow readers."""

import asyncio
import json
from uuid import uuid4

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from channels.routing import URLRouter

from cluster.models import Membership, Team, User
from jobs.models import Job
from journal.services import Fact, record
from telemetry.consumers import hub as hub_module
from telemetry.consumers.access import Credential
from telemetry.routing import websocket_urlpatterns

pytestmark = pytest.mark.django_db(transaction=True)
append = database_sync_to_async(record)
PATIENCE_S = 60  # for a crowded machine


@pytest.fixture
def job():
    team = Team.objects.create(slug="demo", name="Demo")
    user = User.objects.create(username="ada")
    Membership.objects.create(team=team, user=user, role="viewer")
    return Job.objects.create(kind="study", name="j", team=team, owner=user, spec={})


@pytest.fixture
def open_stream():
    """Open streams as a browser would, and close them all at the end."""
    router = URLRouter(websocket_urlpatterns(lambda credentials: set(revoked)))
    revoked: set[Credential] = set()

    async def open_(stream, user_id, after=None, refusal=None):
        scope = {
            "type": "websocket",
            "path": f"/ws/streams/{stream}",
            "query_string": b"" if after is None else f"after={after}".encode(),
            "headers": [],
            "refusal": refusal,
            "credential": Credential(user_id) if user_id is not None else None,
        }
        browser = ApplicationCommunicator(router, scope)
        await browser.send_input({"type": "websocket.connect"})
        assert (await browser.receive_output(timeout=PATIENCE_S))["type"] == "websocket.accept"
        return browser

    open_.revoked = revoked
    return open_


async def next_frame(browser):
    message = await browser.receive_output(timeout=PATIENCE_S)
    assert message["type"] == "websocket.send"
    return json.loads(message["text"])


async def hang_up(browser):
    await browser.send_input({"type": "websocket.disconnect", "code": 1000})
    await browser.wait(timeout=PATIENCE_S)


async def close_code(browser):
    message = await browser.receive_output(timeout=PATIENCE_S)
    assert message["type"] == "websocket.close"
    return message["code"]


async def test_a_fresh_browser_gets_the_present_state_and_then_what_follows(job, open_stream):
    await append(job.stream, [Fact("x", {"n": 1})])
    browser = await open_stream(job.stream, job.owner_id)
    first = await next_frame(browser)
    assert (first["seq"], first["reset"]["job"]["id"]) == (1, str(job.pk))
    await append(job.stream, [Fact("trial.report", {"n": 2})])
    frame = await next_frame(browser)
    assert {key: frame[key] for key in ("stream", "seq", "kind", "data")} == {
        "stream": job.stream, "seq": 2, "kind": "trial.report", "data": {"n": 2},
    }  # fmt: skip
    assert frame["at"].endswith("Z")
    await hang_up(browser)


async def test_ten_reconnects_see_every_event_once(job, open_stream):
    seen: list[int] = []
    writing = asyncio.create_task(write_slowly(job.stream, 120))
    after = 0
    while len(seen) < 120:
        browser = await open_stream(job.stream, job.owner_id, after=after)
        for _ in range(min(12, 120 - len(seen))):
            frame = await next_frame(browser)
            seen.append(frame["seq"])
            after = frame["seq"]
        await hang_up(browser)
    await writing
    assert seen == list(range(1, 121))


async def write_slowly(stream, count):
    for n in range(count):
        await append(stream, [Fact("x", {"n": n})])
        await asyncio.sleep(0.005)


async def test_a_number_that_is_no_longer_kept_resets(job, open_stream, settings):
    settings.EVENTS_KEPT = 10
    for n in range(40):
        await append(job.stream, [Fact("x", {"n": n})])
    browser = await open_stream(job.stream, job.owner_id, after=3)
    assert "reset" in await next_frame(browser)
    await hang_up(browser)


async def test_a_number_beyond_the_end_resets(job, open_stream):
    browser = await open_stream(job.stream, job.owner_id, after=99)
    assert (await next_frame(browser))["seq"] == 0
    await hang_up(browser)


@pytest.mark.parametrize("stream", ["job:{other}", "job:nonsense", "nothing:at-all", "fleet:x"])
async def test_a_stream_that_is_not_ones_own_does_not_exist(job, open_stream, stream):
    browser = await open_stream(stream.format(other=uuid4()), job.owner_id)
    assert await close_code(browser) == 4404


async def test_nobody_listens_without_signing_in(job, open_stream):
    assert await close_code(await open_stream(job.stream, None)) == 4401


async def test_a_foreign_origin_is_refused(job, open_stream):
    assert await close_code(await open_stream(job.stream, job.owner_id, refusal=4403)) == 4403


async def test_a_revoked_credential_closes_the_socket(job, open_stream):
    browser = await open_stream(job.stream, job.owner_id)
    await next_frame(browser)
    open_stream.revoked.add(Credential(job.owner_id))
    assert await close_code(browser) == 4401


async def test_a_member_who_leaves_the_team_is_cut_off(job, open_stream):
    browser = await open_stream(job.stream, job.owner_id)
    await next_frame(browser)
    await database_sync_to_async(Membership.objects.all().delete)()
    assert await close_code(browser) == 4403


async def test_a_reader_that_cannot_keep_up_is_closed(job, open_stream, monkeypatch):
    monkeypatch.setattr(hub_module, "QUEUE_FRAMES", 4)
    subscriber = hub_module.Subscriber(frames=asyncio.Queue(4))
    subscriber.offer([hub_module.Frame(n, "x") for n in range(9)])
    assert subscriber.overflowed.is_set()


async def test_the_listener_finds_its_way_back_after_a_lost_connection(job, open_stream):
    browser = await open_stream(job.stream, job.owner_id, after=0)
    await append(job.stream, [Fact("x", {})])
    assert (await next_frame(browser))["seq"] == 1
    await database_sync_to_async(end_listeners)()
    await append(job.stream, [Fact("x", {})])
    assert (await next_frame(browser))["seq"] == 2
    await hang_up(browser)


def end_listeners():
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
