"""Signing in with a password: slow for those who guess, written to the audit log for those who know."""

from django.contrib.auth import authenticate
from django.core.cache import cache
from django.http import HttpRequest

from cluster.models import User
from journal.services import audit
from web.errors import WebError

MOST_FAILURES = 10
WINDOW_S = 300


class TooManyAttempts(WebError):
    """Somebody keeps guessing; nobody gets in under this name from there for a while."""

    def __init__(self) -> None:
        super().__init__(f"too many attempts: try again in {WINDOW_S // 60} minutes")


def check_password(request: HttpRequest, username: str, password: str) -> User | None:
    """Return the person whose name and password these are, or None; raise TooManyAttempts."""
    keys = [f"sign-in:{request.META.get('REMOTE_ADDR')}", f"sign-in:{username[:150].lower()}"]
    if any(cache.get(key, 0) >= MOST_FAILURES for key in keys):
        raise TooManyAttempts
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        for key in keys:
            cache.add(key, 0, WINDOW_S)
            cache.incr(key)
        return None
    cache.delete_many(keys)
    audit(actor=user.get_username(), action="user.sign-in", target="password")
    return user
