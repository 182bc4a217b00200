"""Downloading what jobs left behind."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, Http404, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils.http import content_disposition_header
from drf_spectacular.utils import OpenApiResponse, OpenApiTypes, extend_schema
from rest_framework.request import Request

from cluster.api.view import Download
from jobs.api.jobs import jobs_of
from jobs.models import Artifact
from jobs.queries import artifact_path

BLOCK_BYTES = 1 << 18
BINARY = "application/octet-stream"


class OneArtifact(Download):
    """A file that a job produced."""

    @extend_schema(
        operation_id="downloadArtifact",
        responses={(200, BINARY): OpenApiResponse(OpenApiTypes.BINARY, "The file.")},
    )
    def get(self, request: Request, artifact_id: UUID) -> HttpResponseBase:
        """Download an artifact, for example a target model as safetensors."""
        artifact = get_object_or_404(Artifact.objects.filter(job__in=jobs_of(request)), pk=artifact_id)
        try:
            path = artifact_path(artifact)
            file = path.open("rb")
        except OSError:
            raise Http404("the file of this artifact is gone") from None
        return send_file(request, file, path, artifact.name, etag=artifact.sha256)


def send_file(request: Request, file: Any, path: Path, name: str, *, etag: str) -> HttpResponseBase:
    """Send an open file in blocks, as a download that no browser interprets."""
    response: HttpResponseBase
    if isinstance(request._request, ASGIRequest):
        # A plain iterator would be read into memory whole before the first byte leaves.
        response = StreamingHttpResponse(blocks(file), content_type=BINARY)
    else:
        response = FileResponse(file, content_type=BINARY)
    response["Content-Length"] = str(path.stat().st_size)
    response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    response["ETag"] = f'"{etag}"'
    response["Cache-Control"] = "private, immutable"
    return response


async def blocks(file: Any) -> AsyncIterator[bytes]:
    """Yield a file block by block, off the event loop."""
    with file:
        while block := await asyncio.to_thread(file.read, BLOCK_BYTES):
            yield block
