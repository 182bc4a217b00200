"""Wiring of tuning: a study is a kind of job."""

from django.apps import AppConfig


class TuningConfig(AppConfig):
    name = "tuning"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models are importable only now.
        from jobs.core.states import JobKind
        from jobs.services.kinds import register_kind
        from telemetry.queries import register_job_snapshot
        from tuning.queries.study_state import study_snapshot
        from tuning.services.studies import StudyHandler

        register_kind(JobKind.STUDY, StudyHandler())
        register_job_snapshot(JobKind.STUDY, study_snapshot)
