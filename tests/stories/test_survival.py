"""Every part is killed while a study runs. Nothing acknowledged is lost, nothing runs twice in effect."""

import os
import signal
from pathlib import Path

import httpx
import psycopg
import pytest
import redis

pytestmark = [pytest.mark.platform, pytest.mark.timeout(600)]
TRIALS, EPOCHS = 14, 25


def ended(platform, job_id: str) -> int:
    return int(platform.job(job_id).get("summary", {}).get("trials_ended", -1))


def actors() -> list[int]:
    """Processes of Ray actors that belong to somebody's tuner."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::DeviceProcess"):
            found.append(int(entry.name))
    return found


def descendants_of(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found, waiting = set(), [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def kill_part(platform, name: str) -> None:
    """Kill a part with SIGKILL and wait until another one stands in its place."""
    victim = platform.runtime.parts[name]
    victim.send(signal.SIGKILL)
    back = lambda: platform.runtime.parts[name] != victim and platform.runtime.parts[name].is_alive()  # noqa: E731
    assert platform.eventually(back), f"{name} did not come back"


def test_a_study_survives_the_death_of_every_part(platform) -> None:
    # Learning rates at which every trial converges: what fails here fails for another reason.
    space = {
        "lr": {"type": "loguniform", "low": 0.001, "high": 0.05},
        "momentum": {"type": "uniform", "low": 0.5, "high": 0.9},
    }
    job_id = platform.submit(trials=TRIALS, epochs=EPOCHS, scaling=1, fusion="off", space=space)
    assert platform.eventually(lambda: ended(platform, job_id) >= 1, 120), platform.job(job_id)

    mine = descendants_of(platform.runtime.parts["tuner"].pid)
    victims = [pid for pid in actors() if pid in mine]
    assert victims, "no actor of this platform is running"
    os.kill(victims[0], signal.SIGKILL)
    goes_on(platform, job_id)

    kill_part(platform, "web")
    kill_part(platform, "beat")
    goes_on(platform, job_id)

    broker = redis.Redis(unix_socket_path=str(platform.data / "valkey" / "run" / "valkey.sock"))
    broker.flushall()
    kill_part(platform, "valkey")
    kill_part(platform, "postgres")
    goes_on(platform, job_id)

    kill_part(platform, "tuner")
    kill_part(platform, "coordinator")
    done = platform.wait(job_id, "completed", "failed", seconds=300)
    assert (done["state"], done["reason"]) == ("completed", ""), done
    check_invariants(platform, job_id)


def epochs_trained(platform, job_id: str) -> int:
    """Return how many epochs the study's trials have behind them, or -1 while nobody answers."""
    try:
        rows = platform.items(f"jobs/{job_id}/trials?limit=500")
    except (httpx.TransportError, KeyError, ValueError):
        return -1
    return sum(row["epochs"] for row in rows)


def goes_on(platform, job_id: str) -> None:
    """Within a minute the study has trained more than before, unless it has trained everything."""
    assert platform.eventually(lambda: epochs_trained(platform, job_id) >= 0, 60), "nobody answers"
    before = epochs_trained(platform, job_id)
    more = lambda: epochs_trained(platform, job_id) > before or before == TRIALS * EPOCHS  # noqa: E731
    assert platform.eventually(more, 60), platform.job(job_id)


def check_invariants(platform, job_id: str) -> None:
    trials = platform.items(f"jobs/{job_id}/trials?limit=500")
    assert sorted(row["trial"] for row in trials) == list(range(TRIALS))
    assert {(row["state"], row["reason"]) for row in trials} == {("completed", None)}
    with psycopg.connect(platform.runtime.database_url) as connection:
        rows = connection.execute(
            "SELECT seq, kind, data->>'trial' FROM journal_event WHERE stream_id = %s ORDER BY seq",
            [f"job:{job_id}"],
        ).fetchall()
        waiting = connection.execute("SELECT count(*) FROM journal_outboxmessage").fetchone()
    assert [seq for seq, _, _ in rows] == list(range(1, len(rows) + 1))
    finished = sorted(int(trial) for _, kind, trial in rows if kind == "trial.finished")
    assert finished == list(range(TRIALS))
    assert waiting == (0,)
    assert platform.api("GET", "audit/verify").json()["intact"] is True
