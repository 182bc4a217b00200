"""Wiring of telemetry."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    name = "telemetry"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models are importable only now.
        from jobs.core.states import JobKind
        from telemetry.queries import register_job_snapshot
        from telemetry.queries.training_state import training_snapshot

        register_job_snapshot(JobKind.TRAINING, training_snapshot)
