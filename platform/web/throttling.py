"""Rates: how many requests a token or a person may send. For fairness, not for security.

The generic cell rate algorithm (ITU-T I.371): one number per caller, the time at which their allowance is
whole again, instead of a list of past requests.
"""

import math
import time
from typing import Any, NamedTuple

from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

EXPORTS = ("trials.csv", "trials.parquet")


class Verdict(NamedTuple):
    """Whether a request is let through, how many may follow, and when the allowance is whole again."""

    allowed: bool
    limit: int
    remaining: int
    reset_s: float
    retry_after_s: float


def weigh(full_at: float | None, now: float, per_minute: int) -> tuple[Verdict, float]:
    """Judge a request of a caller whose allowance is whole at `full_at`; return verdict and new time.

    A caller who has been quiet may send a whole minute's worth at once.
    """
    interval, window = 60.0 / per_minute, 60.0
    start = max(full_at or now, now)
    after = start + interval
    # The tolerance keeps the last of exactly `per_minute` requests from failing by rounding.
    if after - now > window + interval * 1e-6:
        return Verdict(False, per_minute, 0, start - now, after - now - window), start
    remaining = max(0, math.floor((window - (after - now)) / interval + 1e-6))
    return Verdict(True, per_minute, remaining, after - now, 0.0), after


def allow(bucket: str, caller: str, per_minute: int) -> Verdict:
    """Count a request of a caller in a bucket."""
    key, now = f"rate:{bucket}:{caller}", time.time()
    verdict, full_at = weigh(cache.get(key), now, per_minute)
    if verdict.allowed:
        cache.set(key, full_at, timeout=120)
    return verdict


class FairUse(BaseThrottle):
    """One bucket for everything, and smaller ones for submitting and for exporting."""

    verdict: Verdict

    def allow_request(self, request: Request, view: Any) -> bool:
        token = request.auth
        caller = (
            f"token:{token.pk}" if token else f"user:{request.user.pk or request.META.get('REMOTE_ADDR')}"
        )
        verdicts = [allow("all", caller, settings.RATES["all"])]
        if bucket := _bucket(request):
            verdicts.append(allow(bucket, caller, settings.RATES[bucket]))
        self.verdict = min(verdicts, key=lambda verdict: (verdict.allowed, verdict.remaining))
        # Django's request, because its middleware writes the headers.
        request._request.rate_verdict = self.verdict  # type: ignore[attr-defined]
        return self.verdict.allowed

    def wait(self) -> float:
        return math.ceil(self.verdict.retry_after_s)


def _bucket(request: Request) -> str | None:
    if request.method == "POST" and request.path == "/api/v1/jobs":
        return "submit"
    return "export" if request.path.endswith(EXPORTS) else None
