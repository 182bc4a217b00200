"""What webhooks say: which events, in which words, and which of them say the same thing again."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from telemetry.core.states import FAULTS

# event kind -> what a person reads beside it
KINDS: dict[str, str] = {
    "verdict.opened": "a device or link of a training job turned slow or died",
    "verdict.cleared": "such an incident is over",
    "reconfiguration.proposed": "a plan waits for approval",
    "reconfiguration.approved": "a plan was approved",
    "reconfiguration.rejected": "a plan was rejected",
    "reconfiguration.expired": "nobody decided on a plan in time",
    "reconfiguration.executed": "a job runs in its new layout",
    "reconfiguration.failed": "a job could not be brought into its new layout",
    "job.state": "a job was queued, started or ended",
}
USUAL = ("verdict.opened", "verdict.cleared", "reconfiguration.proposed", "reconfiguration.failed")
TEST = "webhook.test"
# The same about the same device within this time is said once.
QUIET = timedelta(minutes=5)
LARGEST_BODY = 64_000
# Seconds until another try, as the specification recommends; after the last one the message is given up.
RETRY_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)


def concerns(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether an event is an alert at all: verdicts that say that nothing is broken are not."""
    return kind in KINDS and (not kind.startswith("verdict.") or data.get("kind") in FAULTS)


def key_of(kind: str, data: Mapping[str, Any]) -> str:
    """Return what an alert is about; alerts with the same key and kind repeat each other.

    A device that several jobs call slow is one alert. Everything but verdicts is always said.
    """
    if not kind.startswith("verdict."):
        return ""
    where = data.get("device") or f"{data.get('job')} {json.dumps(data.get('subject'), sort_keys=True)}"
    return f"{where}:{data.get('kind')}"[:300]


def repeats(kind: str, last_kind: str | None, last_at: datetime | None, now: datetime) -> bool:
    """Whether an alert repeats the last one about the same: same kind, a short while ago."""
    return last_kind == kind and last_at is not None and now - last_at < QUIET


def body_of(kind: str, at: datetime, data: Mapping[str, Any], link: str) -> dict[str, Any]:
    """Return the payload; data that would make it too large is left to be fetched by its link."""
    content = {"type": kind, "timestamp": at.isoformat(), "data": {**data, "link": link}}
    if len(json.dumps(content)) > LARGEST_BODY:
        content["data"] = {"id": data.get("id"), "link": link, "truncated": True}
    return content


def path_of(kind: str, data: Mapping[str, Any]) -> str:
    """Return the path of the page about an alert."""
    if kind.startswith("verdict."):
        return f"/incidents/{data.get('id')}"
    if kind.startswith("reconfiguration."):
        return f"/reconfigurations/{data.get('id')}"
    return f"/jobs/{data.get('id')}" if kind == "job.state" else "/webhooks"


def next_try(attempts: int, chance: float) -> timedelta | None:
    """Return how long to wait after so many attempts, None when it is over; `chance` in [0, 1) spreads it."""
    if attempts > len(RETRY_S):
        return None
    return timedelta(seconds=RETRY_S[attempts - 1] * (0.9 + 0.2 * chance))
