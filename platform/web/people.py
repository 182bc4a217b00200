"""Pages about people: the members of one's teams, and one's own password."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from cluster.core.roles import Permission, Role
from cluster.models import Membership, Team, User
from cluster.queries import teams_where
from journal.services import audit
from web.errors import InvalidPerson, NotGranted
from web.services import people as services

ROLES = {
    Role.VIEWER: "sees everything of the team",
    Role.RESEARCHER: "also submits and cancels jobs",
    Role.OPERATOR: "also operates devices and the queue, and rehearses failures",
    Role.ADMIN: "also approves plans and decides who belongs to the team",
}


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def people(request: HttpRequest) -> HttpResponse:
    """Show the members of the teams one administers; let somebody in and show their link this once."""
    actor, teams = _admin(request)
    link, errors = None, {}
    if request.method == "POST":
        team = next((team for team in teams if team.slug == request.POST.get("team")), teams[0])
        try:
            name, role = request.POST.get("name", "").strip(), request.POST.get("role", "")
            row = services.let_in(actor=actor, team=team, name=name, role=role)
            link = _link(request, actor, row.user) if not row.user.last_login else None
            messages.success(request, f"{name} is {row.role} of {team.slug}.")
        except InvalidPerson as problem:
            errors = {pointer.strip("/"): sentence for pointer, sentence in problem.faults}
        except NotGranted as problem:
            messages.error(request, f"{problem}.")
    return _page(request, teams, link=link, errors=errors)


@login_required
@require_POST
def change_member(request: HttpRequest) -> HttpResponse:
    """Change a member's role, or end the membership."""
    actor, teams = _admin(request)
    team, user = _named(request, teams)
    try:
        if request.POST.get("role") == "remove":
            services.let_out(actor=actor, team=team, user_id=user.pk)
            messages.success(request, f"{user.get_username()} is no member of {team.slug} any more.")
        else:
            row = services.change_role(
                actor=actor, team=team, user_id=user.pk, role=request.POST.get("role", "")
            )
            messages.success(request, f"{user.get_username()} is {row.role} of {team.slug}.")
    except (InvalidPerson, NotGranted) as problem:
        messages.error(request, f"Not done: {problem}.")
    return redirect("people")


@login_required
@never_cache
@require_POST
def sign_in_link(request: HttpRequest) -> HttpResponse:
    """Make a new link for a member who cannot sign in, and show it this once."""
    actor, teams = _admin(request)
    _, user = _named(request, teams)
    try:
        link = _link(request, actor, user)
    except NotGranted as problem:
        messages.error(request, f"Not done: {problem}.")
        return redirect("people")
    return _page(request, teams, link=link)


@login_required
@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    """Choose a password; who has one already has to know it."""
    user = request.user
    if not isinstance(user, User):
        raise PermissionDenied("Sign in first.")
    kind: Any = PasswordChangeForm if user.has_usable_password() else SetPasswordForm
    form = kind(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, user)
        audit(actor=user.get_username(), action="user.password", target=f"user:{user.get_username()}")
        messages.success(request, "The password is set: it signs you in from now on.")
        return redirect("password")
    status = 422 if request.method == "POST" else 200
    return render(request, "web/password.html", {"form": form, "section": "password"}, status=status)


def _admin(request: HttpRequest) -> tuple[User, list[Team]]:
    if not isinstance(request.user, User):
        raise PermissionDenied("Sign in first.")
    teams = list(teams_where(request.user, Permission.ADMINISTER))
    if not teams:
        raise PermissionDenied("Only admins decide who belongs to a team.")
    return request.user, teams


def _named(request: HttpRequest, teams: list[Team]) -> tuple[Team, User]:
    """Return the team and the member that a form means; 404 for others."""
    rows = Membership.objects.select_related("team", "user").filter(team__in=teams)
    try:
        row = rows.get(team__slug=request.POST.get("team", ""), user_id=UUID(request.POST.get("user", "")))
    except (ValueError, Membership.DoesNotExist):
        raise Http404("There is no such member.") from None
    return row.team, row.user


def _link(request: HttpRequest, actor: User, user: User) -> tuple[User, str]:
    secret = services.sign_in_secret(actor=actor, user=user)
    return user, request.build_absolute_uri(reverse("login-link", args=[secret]))


def _page(
    request: HttpRequest,
    teams: list[Team],
    *,
    link: tuple[User, str] | None = None,
    errors: dict[str, str] | None = None,
) -> HttpResponse:
    members = Membership.objects.filter(team__in=teams).select_related("team", "user")
    context = {
        "section": "people",
        "teams": teams,
        "members": members.order_by("team__slug", "user__username"),
        "roles": [(role.value, text) for role, text in ROLES.items()],
        "link": link,
        "errors": errors or {},
        "typed": request.POST if errors else None,
    }
    return render(request, "web/people.html", context, status=422 if errors else 200)
