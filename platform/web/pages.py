"""Pages of the site itself: signing in and out, tokens, the audit log, preferences."""

from datetime import timedelta
from uuid import UUID

from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from cluster.core.keyset import InvalidQuery, decode_cursor, encode_cursor, read_integer
from cluster.core.roles import Permission, Scope
from cluster.models import User
from cluster.queries import teams_of, teams_where
from journal.queries import broken_audit_entry
from web.errors import InvalidToken
from web.models import ApiToken
from web.queries import audit_entries_for
from web.services.one_time import LOGIN, redeem_secret
from web.services.passwords import TooManyAttempts, check_password
from web.services.preferences import set_preferences
from web.services.tokens import create_token, revoke_token

BACKEND = "django.contrib.auth.backends.ModelBackend"
LIVES = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year", "": "no end"}
SCOPES = {
    Scope.READ: "read what you may see",
    Scope.SUBMIT: "submit, cancel and resume jobs",
    Scope.OPERATE: "cordon, drain and uncordon devices",
    Scope.ADMIN: "administer teams, read the audit log, make tokens",
}
AUDIT_PAGE = 100
AUDIT_ORDER = "newest"


@sensitive_post_parameters("password")
@csrf_protect
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Ask for name and password; go on to where the reader wanted to go."""
    onward = safe_next(request)
    if request.user.is_authenticated:
        return HttpResponseRedirect(onward)
    name, error = request.POST.get("username", "").strip(), ""
    if request.method == "POST":
        try:
            user = check_password(request, name, request.POST.get("password", ""))
        except TooManyAttempts as problem:
            return render(
                request,
                "web/sign_in.html",
                {"error": f"{problem}.", "name": name, "next": onward},
                status=429,
            )
        if user is not None:
            login(request, user, BACKEND)
            return HttpResponseRedirect(onward)
        error = "The name or the password is wrong."
    context = {"error": error, "name": name, "next": onward}
    return render(request, "web/sign_in.html", context, status=401 if error else 200)


@never_cache
@require_safe
def login_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Sign in by a one-time link; a link that was used already is no more than a way to the sign-in page."""
    found = redeem_secret(secret, purpose=LOGIN) if request.method == "GET" else None
    if found is not None:
        login(request, found.user, BACKEND)
        return HttpResponseRedirect(safe_next(request))
    if request.user.is_authenticated:
        return redirect("studies")
    return render(request, "web/link_invalid.html", status=403)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Sign out."""
    logout(request)
    return redirect("sign-in")


def safe_next(request: HttpRequest) -> str:
    """Return where to go after signing in: an address of this site, or the first page."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    allowed = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if allowed else resolve_url("studies")


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """Show one's tokens; create one and show its text this once."""
    user = _person(request)
    made, errors = None, {}
    if request.method == "POST":
        life = request.POST.get("life", "30")
        days = int(life) if life in LIVES and life else None
        slug = request.POST.get("team", "")
        team = teams_of(user).filter(slug=slug).first()
        try:
            if slug and team is None:
                raise InvalidToken([("/team", "choose one of your teams")])
            made = create_token(
                user=user,
                actor=user.get_username(),
                name=request.POST.get("name", "").strip(),
                scopes=request.POST.getlist("scopes"),
                team=team,
                expires_at=timezone.now() + timedelta(days=days) if days else None,
            )
        except InvalidToken as problem:
            errors = {pointer.strip("/"): sentence for pointer, sentence in problem.faults}
    context = {
        "section": "tokens",
        "tokens": ApiToken.objects.filter(user=user).select_related("team").order_by("-created_at"),
        "made": made,
        "errors": errors,
        "typed": request.POST if errors else None,
        "chosen": request.POST.getlist("scopes") if errors else [Scope.READ, Scope.SUBMIT],
        "scopes": [(scope.value, text) for scope, text in SCOPES.items()],
        "lives": LIVES.items(),
        "teams": teams_of(user),
        "now": timezone.now(),
    }
    return render(request, "web/tokens.html", context, status=422 if errors else 200)


@login_required
@require_POST
def revoke(request: HttpRequest, token_id: UUID) -> HttpResponse:
    """Revoke one of one's tokens."""
    user = _person(request)
    try:
        token = revoke_token(user=user, token_id=token_id, actor=user.get_username())
    except ApiToken.DoesNotExist:
        raise Http404("There is no such token.") from None
    messages.success(request, f"The token {token.name} opens nothing any more.")
    return redirect("tokens")


@login_required
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """Show who did what in the teams one administers, newest first."""
    user = _person(request)
    if not teams_where(user, Permission.ADMINISTER).exists():
        raise PermissionDenied("Only admins read the audit log.")
    rows = audit_entries_for(user)
    filters = {
        name: request.GET.get(name, "").replace("\0", "").strip() for name in ("actor", "action", "target")
    }
    for name, text in filters.items():
        rows = rows.filter(**{f"{name}__icontains": text}) if text else rows
    total = rows.count()
    try:
        if cursor := request.GET.get("cursor"):
            (number,) = decode_cursor(cursor, AUDIT_ORDER, [read_integer])
            rows = rows.filter(number__lt=number)
    except InvalidQuery:
        pass
    items = list(rows.order_by("-number")[: AUDIT_PAGE + 1])
    more = len(items) > AUDIT_PAGE
    items = items[:AUDIT_PAGE]
    context = {
        "section": "audit",
        "entries": items,
        "total": total,
        "filters": filters,
        "next_cursor": encode_cursor(AUDIT_ORDER, [items[-1].number]) if more else None,
    }
    return render(request, "web/audit.html", context)


@login_required
@require_safe
def verify_audit(request: HttpRequest) -> HttpResponse:
    """Compute every hash of the audit chain anew and say whether it holds."""
    if not teams_where(_person(request), Permission.ADMINISTER).exists():
        raise PermissionDenied("Only admins read the audit log.")
    context = {"section": "audit", "broken": broken_audit_entry(), "checked_at": timezone.now()}
    part = request.headers.get("HX-Request") == "true"
    return render(request, "web/audit_verdict.html" if part else "web/audit_verified.html", context)


@login_required
@require_POST
def preferences(request: HttpRequest) -> HttpResponse:
    """Keep how one likes pages to look; unknown names and values are not kept."""
    set_preferences(user=_person(request), wanted=request.POST)
    if request.headers.get("X-Requested-With") == "fetch":
        return HttpResponse(status=204)
    return HttpResponseRedirect(safe_next(request))


def _person(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise PermissionDenied("Sign in first.")
    return request.user
