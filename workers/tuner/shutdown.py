"""Telling drivers that their worker is shutting down, so that they let go at once and cleanly."""

import threading
from typing import Any

from celery.signals import worker_shutting_down

stopping = threading.Event()


@worker_shutting_down.connect
def _shut_down(**_: Any) -> None:
    stopping.set()
