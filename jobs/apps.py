"""Wiring of jobs."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models are importable only now.
        from jobs.core.states import JobKind
        from jobs.services.kinds import register_kind
        from jobs.services.overlaps import OverlapHandler
        from jobs.services.rehearsals import RehearsalHandler
        from jobs.services.training import TrainingHandler

        register_kind(JobKind.OVERLAP, OverlapHandler())
        register_kind(JobKind.TRAINING, TrainingHandler())
        register_kind(JobKind.REHEARSAL, RehearsalHandler())
