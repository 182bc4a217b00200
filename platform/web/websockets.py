"""Who stands behind a WebSocket: a session with the right Origin, a token in the header, or a ticket."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog
from channels.db import database_sync_to_async
from channels.sessions import CookieMiddleware
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.http.request import split_domain_port, validate_host
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from cluster.models import User
from telemetry.consumers.access import Credential
from telemetry.core.streams import Close
from web.models import ApiToken
from web.services.one_time import TICKET, redeem_secret
from web.services.tokens import find_token, is_valid

log = structlog.get_logger(__name__)
Scope = dict[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[Any]]


class Credentials:
    """ASGI middleware: puts a `credential` into the scope, or a `refusal` with the reason to close."""

    def __init__(self, inner: Application) -> None:
        self.inner = inner

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> Any:
        credential, refusal = await database_sync_to_async(identify)(scope)
        if refusal is not None:
            log.warning(
                "websocket.refused",
                path=scope.get("path"),
                code=int(refusal),
                origin=header(scope, b"origin"),
            )
        return await self.inner({**scope, "credential": credential, "refusal": refusal}, receive, send)


def with_credentials(inner: Application) -> Application:
    """Wrap the routes of WebSockets."""
    wrapped: Application = CookieMiddleware(Credentials(inner))
    return wrapped


def identify(scope: Scope) -> tuple[Credential | None, Close | None]:
    """Return who asks, or why nobody may."""
    origin = header(scope, b"origin")
    if not validate_host(split_domain_port(header(scope, b"host") or "")[0], settings.ALLOWED_HOSTS):
        return None, Close.NOT_ALLOWED
    if origin is not None and not is_own(origin, header(scope, b"host") or ""):
        return None, Close.NOT_ALLOWED
    ticket = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [])
    if ticket:
        return of_ticket(ticket[-1])
    if authorization := header(scope, b"authorization"):
        return of_token(authorization)
    credential = of_session(scope.get("cookies", {}).get(settings.SESSION_COOKIE_NAME))
    # A browser always says where a page came from; a cookie without that is not a browser's own doing.
    if credential is not None and origin is None:
        return None, Close.NOT_ALLOWED
    return credential, None if credential else Close.NOT_SIGNED_IN


def is_own(origin: str, host: str) -> bool:
    """Whether a page of this origin is one of ours."""
    return urlsplit(origin).netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS


def of_ticket(secret: str) -> tuple[Credential | None, Close | None]:
    """Use up a ticket; it stands for the token or the person it was given to."""
    found = redeem_secret(secret, purpose=TICKET)
    if found is None or (found.token is not None and not is_valid(found.token)):
        return None, Close.NOT_SIGNED_IN
    token = found.token
    return Credential(found.user_id, token.pk if token else None, token.team_id if token else None), None


def of_token(authorization: str) -> tuple[Credential | None, Close | None]:
    """Return the credential of an Authorization header."""
    scheme, _, text = authorization.partition(" ")
    token = find_token(text.strip()) if scheme.lower() == "bearer" else None
    if token is None:
        return None, Close.NOT_SIGNED_IN
    return Credential(token.user_id, token.pk, token.team_id), None


def of_session(key: str | None) -> Credential | None:
    """Return the credential of a signed-in browser."""
    if not key:
        return None
    stored = SessionStore(key).load()
    user_id = stored.get(SESSION_KEY)
    user = User.objects.filter(pk=user_id, is_active=True).first() if user_id else None
    if user is None or not constant_time_compare(
        stored.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash()
    ):
        return None
    return Credential(user.pk, session_key=key)


def no_longer_hold(credentials: Iterable[Credential]) -> set[Credential]:
    """Return the credentials whose person, token or session is gone: three queries for any number of them."""
    asked = set(credentials)
    users = set(
        User.objects.filter(pk__in={c.user_id for c in asked}, is_active=True).values_list("pk", flat=True)
    )
    now = timezone.now()
    tokens = {
        pk
        for pk, expires_at in ApiToken.objects.filter(
            pk__in={c.token_id for c in asked if c.token_id}, revoked_at=None
        ).values_list("pk", "expires_at")
        if expires_at is None or expires_at > now
    }
    keys = {c.session_key for c in asked if c.session_key}
    sessions = set(
        Session.objects.filter(session_key__in=keys, expire_date__gt=now).values_list(
            "session_key", flat=True
        )
    )
    return {
        c
        for c in asked
        if c.user_id not in users
        or (c.token_id is not None and c.token_id not in tokens)
        or (c.session_key is not None and c.session_key not in sessions)
    }


def header(scope: Scope, name: bytes) -> str | None:
    """Return a header of the handshake."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)
