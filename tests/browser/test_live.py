"""Live pages: no gap, no double, and honesty while the connection is away."""

import re

import pytest
from playwright.sync_api import expect

from jobs.core.states import JobState
from journal.queries import window_of
from journal.services import Fact, record

# A stream fed by a socket of the test's own, in the page's own module.
DRIVE = """async () => {
  const { Stream, waitFor } = await import("/static/js/stream.js");
  const sockets = [], seen = [], resets = [], states = [];
  class Socket {
    constructor(url) { this.url = url; this.readyState = 0; sockets.push(this); }
    close() { this.readyState = 3; }
  }
  const stream = new Stream("job:x", 4, {
    onEvents: (events) => seen.push(...events.map((e) => e.seq)),
    onReset: (snapshot) => resets.push(snapshot),
    onState: (state) => states.push(state.isOpen),
  }, { Socket });
  stream.open();
  const say = (frame) => sockets.at(-1).onmessage({ data: JSON.stringify(frame) });
  sockets.at(-1).onopen();
  say({ seq: 5 }); say({ seq: 5 }); say({ seq: 6 }); say({ seq: 4 });
  say({ seq: 9 });
  const old = sockets.at(-1);
  stream.retryNow();
  sockets.at(-1).onopen();
  old.onmessage({ data: JSON.stringify({ seq: 7 }) });
  say({ seq: 7 }); say({ seq: 8 }); say({ seq: 9 });
  say({ reset: { state: "running" }, seq: 40 });
  say({ seq: 41 });
  return { seen, resets, states, urls: sockets.map((s) => s.url.replace(/.*after=/, "")),
           waits: [0, 1, 5, 30].map((n) => [waitFor(n, () => 0), waitFor(n, () => 1)]) };
}"""


def test_a_gap_is_asked_for_again_and_a_double_is_dropped(ada, open_as):
    found = open_as(ada).evaluate(DRIVE)
    assert found["seen"] == [5, 6, 7, 8, 9, 41]
    assert found["urls"] == ["4", "6"]
    assert found["resets"] == [{"state": "running"}]


def test_the_wait_between_attempts_grows_is_bounded_and_jitters(ada, open_as):
    waits = open_as(ada).evaluate(DRIVE)["waits"]
    assert waits == [[250, 500], [500, 1000], [8000, 16_000], [10_000, 20_000]]


@pytest.fixture
def watched(ada, team, demo, open_as):
    """A running study's page whose socket the test can cut, and the job."""
    job = demo.study(ada, team, trials=30, ended=5, state=JobState.RUNNING)
    page = open_as(ada)
    routes = []

    def connect(route):
        routes.append(route)
        route.connect_to_server()

    page.route_web_socket(re.compile("/ws/streams/"), connect)
    page.goto(page.url + f"studies/{job.pk}")
    expect(page.locator("[data-live-state]")).to_have_attribute("data-live-state", "open")
    page.evaluate(
        """() => {
          window.seen = [];
          document.addEventListener("forebay:events", (e) => window.seen.push(...e.detail.map((f) => f.seq)));
        }"""
    )
    return page, job, routes


def test_ten_cut_connections_lose_no_event_and_repeat_none(watched):
    page, job, routes = watched
    start = window_of(job.stream).last_seq
    for turn in range(10):
        record(job.stream, [Fact("trial.report", {"trial": 5, "epoch": turn, "metric": 0.5})] * 3)
        opened = len(routes)
        routes[-1].close(code=1001)
        record(job.stream, [Fact("trial.report", {"trial": 6, "epoch": turn, "metric": 0.5})] * 2)
        for _ in range(200):
            page.evaluate("() => window.dispatchEvent(new Event('online'))")
            page.wait_for_timeout(50)
            if len(routes) > opened:
                break
    page.wait_for_function("last => window.seen.at(-1) === last", arg=start + 50)
    assert page.evaluate("window.seen") == list(range(start + 1, start + 51))
    assert len(routes) >= 10


def test_stale_data_are_announced_and_the_page_recovers(watched):
    page, job, routes = watched
    page.context.set_offline(True)
    routes[-1].close(code=1001)
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#stale")).to_contain_text("the live connection is gone")
    page.context.set_offline(False)
    expect(page.locator("#stale")).to_be_hidden()


def test_a_finished_trial_appears_in_table_and_head(watched):
    page, job, _ = watched
    trial = job.trials.get(number=5)
    expect(page.locator("#trial-5 .badge")).to_have_text("running")
    trial.state, trial.metric, trial.epochs = "completed", 0.9912, 20
    trial.save()
    job.study.trials_ended, job.study.best_metric, job.study.best_trial = 6, 0.9912, 5
    job.study.save()
    record(job.stream, [Fact("trial.finished", {"trial": 5})])
    expect(page.locator("#trial-5 .badge")).to_have_text("completed")
    expect(page.locator("#best-value")).to_contain_text("0.9912")
