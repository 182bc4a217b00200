"""Wiring of the cluster."""

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class ClusterConfig(AppConfig):
    name = "cluster"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Refuse to start with a policy that there is not: every tick would fail."""
        from cluster.core.policies import LIVE

        if settings.QUEUE_POLICY not in LIVE:
            rule = f"{settings.QUEUE_POLICY!r}: say one of {', '.join(LIVE)}"
            raise ImproperlyConfigured(f"FOREBAY_QUEUE_POLICY is {rule}")
