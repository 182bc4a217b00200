"""The Django admin: for superusers, behind the same door as everything else."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode


class SuperuserSite(AdminSite):
    """No second sign-in form, which nobody would throttle: the usual one, then back here."""

    site_header = site_title = "Forebay"
    index_title = "Records"

    def has_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Send those who are not signed in to the sign-in page, and others home."""
        if request.user.is_authenticated:
            return redirect("/")
        return redirect(f"{reverse('sign-in')}?{urlencode({'next': request.GET.get('next', '/')})}")


class SuperuserAdminConfig(AdminConfig):
    """Makes that site the one models register with."""

    default_site = "web.admin_site.SuperuserSite"
