"""Wiring of the web project."""

from django.apps import AppConfig

from web.logs import configure


class WebConfig(AppConfig):
    name = "web"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Give every log line its form."""
        configure()
