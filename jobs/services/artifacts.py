"""Storing files that jobs produced: named by id, written whole, then recorded."""

import hashlib
import os
import shutil
from pathlib import Path

from django.conf import settings

from jobs.models import Artifact, Job
from journal.core.ids import new_id


def store_artifact(*, job: Job, source: Path, name: str, kind: str) -> Artifact:
    """Copy a finished file into the artifact directory and record it in the caller's transaction.

    The source stays, since the transaction may fail and be tried again.
    """
    artifact_id = new_id()
    folder = Path(settings.ARTIFACT_DIR) / str(job.pk)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / str(artifact_id)
    digest = hashlib.sha256()
    with source.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    partial = target.with_suffix(".partial")
    shutil.copyfile(source, partial)
    os.replace(partial, target)
    return Artifact.objects.create(
        id=artifact_id,
        job=job,
        name=name,
        kind=kind,
        path=str(target.relative_to(settings.ARTIFACT_DIR)),
        size_bytes=target.stat().st_size,
        sha256=digest.hexdigest(),
    )
