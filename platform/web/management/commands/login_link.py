"""Print the path of a one-time link that signs in the first administrator."""

from typing import Any

from django.core.management.base import BaseCommand
from django.urls import reverse

from web.services.first_admin import first_admin
from web.services.one_time import LOGIN, issue_secret


class Command(BaseCommand):
    help = "Print the path of a link that signs in the first administrator, once, within 15 minutes."

    def handle(self, *args: Any, **options: Any) -> None:
        """Create `admin` and the team `demo` on a new installation, then print the path."""
        secret = issue_secret(purpose=LOGIN, user=first_admin())
        self.stdout.write(reverse("login-link", args=[secret]))
