"""Who a request comes from: a token in the Authorization header, or else a browser's session; never both."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from cluster.models import User
from web.models import ApiToken
from web.services.tokens import find_token

REALM = 'Bearer realm="forebay"'


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer fb_…`. The header decides; a session beside it is not looked at."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("send a token as: Authorization: Bearer fb_…")
        token = find_token(text.strip(), request.META.get("REMOTE_ADDR") or None)
        if token is None:
            raise AuthenticationFailed("this token is unknown, expired or revoked")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return REALM


class BrowserSession(SessionAuthentication):
    """A signed-in browser; its unsafe requests need the CSRF token."""

    def authenticate_header(self, request: Request) -> str:
        return REALM


class BearerScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI document describes tokens."""

    target_class = BearerToken
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "An API token: `forebay token create`."}


class SessionScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI document describes sessions."""

    target_class = BrowserSession
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "sessionid",
            "description": "A signed-in browser; unsafe requests also need the header X-CSRFToken.",
        }
