"""Requests to the platform: submitting, the first page of many trials, an incident's way to a browser."""

import asyncio
import json
import statistics
import time
from typing import Any
from uuid import uuid4

import httpx

from forebay.cli.bench.platform_house import House
from forebay.cli.bench.platform_sockets import Crowd, Listener, quantile
from forebay.cli.errors import CommandError, Exit

DEVICES_LIMIT_S = 90.0
INCIDENT_LIMIT_S = 30.0
STUDY = {"workload": "digits-mlp", "trials": 4, "epochs": 1, "scaling": 1, "search": "random"}


def submit(house: House, count: int) -> dict[str, Any]:
    """Submit studies one after the other and cancel them again.

    The worker that would drive them is held still meanwhile: their training would take the processor from
    the requests, and that is no part of accepting a job.
    """
    seconds, jobs = [], []
    with house.client() as http, house.paused("tuner"):
        for number in range(count + 1):
            body = {"kind": "study", "name": f"bench {number}", "spec": STUDY}
            began = time.perf_counter()
            answer = http.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": str(uuid4())})
            if number:  # the first request opens the connection
                seconds.append(time.perf_counter() - began)
            if answer.status_code != 202:
                raise CommandError(
                    f"a submission was answered with {answer.status_code}: {answer.text[:300]}", Exit.FAILED
                )
            jobs.append(answer.json()["id"])
        for job in jobs:
            http.post(f"/api/v1/jobs/{job}/cancel").raise_for_status()
    return _summary(seconds)


def tokens_for(house: House, count: int) -> list[str]:
    """Make tokens, so that the clients are not all signed in as one."""
    with house.client() as http:
        made = [
            http.post("/api/v1/tokens", json={"name": f"bench {number}", "scopes": ["read"]})
            for number in range(count)
        ]
    return [str(answer.raise_for_status().json()["token"]) for answer in made]


def first_page(house: House, trials: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Read the first page of a large study's trials by API and in the browser; seconds within the server."""
    job = house.manage("bench_trials", f"--trials={trials}")["job"]
    paths = {
        "api, by number": f"/api/v1/jobs/{job}/trials",
        "api, best first": f"/api/v1/jobs/{job}/trials?sort=-metric",
        "browser, by number": f"/studies/{job}/trials",
        "browser, best first": f"/studies/{job}/trials?sort=-metric",
    }
    names: dict[str, list[str]] = {case: [] for case in paths}
    with house.client() as api, httpx.Client(base_url=house.runtime.url, timeout=60.0) as browser:
        _sign_in(house, browser)
        for _ in range(rounds + 1):
            for case, path in paths.items():
                http, name = browser if case.startswith("browser") else api, f"bench-{uuid4().hex}"
                http.get(path, headers={"X-Request-ID": name}).raise_for_status()
                names[case].append(name)
    spent = _server_seconds(house)
    return {case: _summary([spent[name] for name in asked[1:]]) for case, asked in names.items()}


def _sign_in(house: House, browser: httpx.Client) -> None:
    command = house.command("login_link")
    try:
        path = command.answer()
    finally:
        command.abandon()
    browser.get(path)
    if "sessionid" not in browser.cookies:
        raise CommandError("the one-time link does not sign in", Exit.FAILED)


def _server_seconds(house: House) -> dict[str, float]:
    """Return request id -> seconds in the server, from the web process's own log."""
    found = {}
    time.sleep(0.5)  # the last line is on its way
    for line in (house.data.logs / "web.log").read_text(errors="replace").splitlines():
        if line.startswith("{") and '"ms"' in line:
            entry = json.loads(line)
            found[str(entry.get("request"))] = float(entry["ms"]) / 1000
    return found


async def incident(house: House, token: str, rounds: int) -> dict[str, Any]:
    """Cordon a device and put it back; seconds from the request's first byte to the event in a browser."""
    with house.client() as http:
        device = await asyncio.to_thread(_some_device, http)
        async with Crowd(house.runtime.url, [token], 1) as crowd:
            listener = crowd.listeners[0]
            listener.events = asyncio.Queue()
            seconds = []
            for number in range(2 * rounds + 1):
                action = "uncordon" if number % 2 else "cordon"
                began = time.perf_counter()
                path = f"/api/v1/devices/{device}/{action}"
                answer = asyncio.create_task(asyncio.to_thread(http.post, path, json={"reason": "bench"}))
                heard = await _hear(listener, device)
                (await answer).raise_for_status()
                if number:
                    seconds.append(heard - began)
            await asyncio.to_thread(http.post, f"/api/v1/devices/{device}/uncordon", json={})
    return _summary(seconds)


def _some_device(http: httpx.Client) -> str:
    """Return a device that is in service, once the platform has discovered any."""
    deadline = time.monotonic() + DEVICES_LIMIT_S
    while time.monotonic() < deadline:
        rows = http.get("/api/v1/devices?state=healthy").raise_for_status().json()["items"]
        if rows:
            return str(rows[0]["id"])
        time.sleep(0.5)
    raise CommandError("the platform has discovered no device", Exit.FAILED)


async def _hear(listener: Listener, device: str) -> float:
    assert listener.events is not None
    try:
        async with asyncio.timeout(INCIDENT_LIMIT_S):
            while True:
                at, message = await listener.events.get()
                if message["kind"] == "device.state" and message["data"]["device"] == device:
                    return at
    except TimeoutError:
        raise CommandError("the device's new state did not reach the browser", Exit.FAILED) from None


def _summary(seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "median_s": statistics.median(ordered),
        "p99_s": quantile(ordered, 0.99),
        "max_s": ordered[-1],
    }
