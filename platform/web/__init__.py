"""The Django project: it composes the folders, and no folder imports it."""

from web.celery import app as celery_app

__all__ = ["celery_app"]
