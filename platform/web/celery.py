"""The Celery app. Messages carry ids; a lost, doubled or late one changes no outcome."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "web.settings")
# Django's checks load every page, which a worker never serves: 30 MB and a second in each of them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("forebay")
app.config_from_object("web.celery_settings")
app.autodiscover_tasks(["workers"])
