"""What a study costs beside its training: the driver's processor time, and gaps on the devices."""

import time
from typing import Any
from uuid import uuid4

import httpx

from forebay.cli.bench.platform_house import House
from forebay.cli.errors import CommandError, Exit

STUDY_LIMIT_S = 900.0
WORKLOADS_LIMIT_S = 120.0
ENDED = {"completed", "failed", "cancelled"}
# The first study starts Ray and its actors' processes; it is not measured.
WARM_UP = {"trials": 2, "epochs": 1}


def driver_overhead(house: House, trials: int, epochs: int) -> dict[str, Any]:
    """Run a study of full-size digits-mlp trials, one at a time per device, with Ray already running.

    `driver_cpu_share` is the processor time of the tuner process (all threads, without Ray's own processes,
    which train) over the training time of the trials, the sum of their `device_seconds`. `gap_share` is the
    time that a device was empty between two of the study's trials over the time devices were busy.
    """
    with house.client() as http:
        _await_workloads(http)
        _run(http, **WARM_UP)
        house.settle()
        cpu, began = house.cpu_seconds_of("tuner"), time.perf_counter()
        job = _run(http, trials=trials, epochs=epochs)
        seconds, cpu = time.perf_counter() - began, house.cpu_seconds_of("tuner") - cpu
        rows = http.get(f"/api/v1/jobs/{job}/trials?limit=500").raise_for_status().json()["items"]
        lanes = http.get(f"/api/v1/jobs/{job}/timeline").raise_for_status().json()["lanes"]
    training = sum(row["device_seconds"] for row in rows)
    busy, gaps = _busy_and_gaps(lanes)
    return {
        "trials": len(rows),
        "devices": len(lanes),
        "study_s": seconds,
        "training_s": training,
        "driver_cpu_s": cpu,
        "driver_cpu_share": cpu / training,
        "busy_s": busy,
        "gaps_s": gaps,
        "gap_share": gaps / busy,
    }


def _await_workloads(http: httpx.Client) -> None:
    """A fresh platform answers before it has read what its workloads say of themselves."""
    deadline = time.monotonic() + WORKLOADS_LIMIT_S
    while not http.get("/api/v1/workloads").raise_for_status().json()["items"]:
        if time.monotonic() > deadline:
            raise CommandError("the platform describes no workloads", Exit.FAILED)
        time.sleep(0.5)


def _run(http: httpx.Client, *, trials: int, epochs: int) -> str:
    spec = {
        "workload": "digits-mlp",
        "trials": trials,
        "epochs": epochs,
        "scaling": 1,
        "fusion": "off",
        "top_k": 1,
        "seed": 0,
        "search": "random",
    }
    body = {"kind": "study", "name": "bench", "spec": spec}
    headers = {"Idempotency-Key": str(uuid4())}
    answer = http.post("/api/v1/jobs", json=body, headers=headers).raise_for_status().json()
    deadline = time.monotonic() + STUDY_LIMIT_S
    while answer["state"] not in ENDED and time.monotonic() < deadline:
        time.sleep(0.5)
        answer = http.get(f"/api/v1/jobs/{answer['id']}").raise_for_status().json()
    if answer["state"] != "completed":
        raise CommandError(
            f"the study is {answer['state']}: {answer['reason'] or 'no reason given'}", Exit.FAILED
        )
    return str(answer["id"])


def _busy_and_gaps(lanes: list[dict[str, Any]]) -> tuple[float, float]:
    busy = gaps = 0.0
    for lane in lanes:
        last = None
        for interval in sorted(lane["intervals"], key=lambda row: row["start_s"]):
            busy += interval["end_s"] - interval["start_s"]
            gaps += max(0.0, interval["start_s"] - last) if last is not None else 0.0
            last = max(last or 0.0, interval["end_s"])
    return busy, gaps
