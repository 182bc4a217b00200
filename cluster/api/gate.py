"""The gate of the API: asked before any view."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from cluster.api.caller import demand_somewhere, method_of
from cluster.core.roles import Permission


class SignedIn(BasePermission):
    """Lets in who is signed in and has the needed role in some team, with a token that has the scope."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user or not request.user.is_authenticated:
            return False
        needed = getattr(view, "needs", {}).get(method_of(request), Permission.VIEW)
        # Reading is open to everybody who is signed in: what their teams do not own is not there.
        if needed is not Permission.VIEW:
            demand_somewhere(request, needed)
        return True
