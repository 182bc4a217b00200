"""Print an API token for the command line of whoever runs the platform on this machine."""

from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone

from cluster.core.roles import Scope
from web.models import ApiToken
from web.services.first_admin import first_admin
from web.services.tokens import create_token

NAME = "local command line"


class Command(BaseCommand):
    help = "Print a token of the first administrator; the one printed before is revoked."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        """Create the token, for the caller to store where only they can read it."""
        user = first_admin()
        old = ApiToken.objects.filter(user=user, name=NAME, revoked_at__isnull=True)
        old.update(revoked_at=timezone.now())
        made = create_token(user=user, actor="installation", name=NAME, scopes=[s.value for s in Scope])
        self.stdout.write(made.text)
