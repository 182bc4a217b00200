"""Workloads: described in a process of their own, stored here, so that the web never imports their code."""

import json
import subprocess
import sys
from typing import Any

from django.db import transaction

from tuning.core.errors import WorkloadError
from tuning.models import Workload

DESCRIBE_SECONDS = 120


def describe_workloads() -> list[dict[str, Any]]:
    """Run the describer and return what it says of every registered workload."""
    command = [sys.executable, "-m", "workers.trainer.describe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DESCRIBE_SECONDS, check=True)
        rows: list[dict[str, Any]] = json.loads(done.stdout)["workloads"]
    except (subprocess.SubprocessError, ValueError, KeyError) as error:
        raise WorkloadError(f"the registered workloads could not be described: {error}") from error
    return rows


@transaction.atomic
def store_workloads(rows: list[dict[str, Any]]) -> int:
    """Store descriptions; workloads that are no longer registered stay known but cannot be used."""
    for row in rows:
        Workload.objects.update_or_create(
            name=row["name"],
            defaults={
                "description": row,
                "error": str(row.get("error") or "")[:1000],
                "is_available": not row.get("error"),
            },
        )
    Workload.objects.exclude(name__in=[row["name"] for row in rows]).update(
        is_available=False, error="no longer registered on this machine"
    )
    return len(rows)
