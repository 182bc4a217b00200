"""Reading jobs."""

from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from cluster.models import User
from cluster.queries import teams_of
from jobs.models import Artifact, Job


def jobs_for(user: User | AnonymousUser, *, team_id: UUID | None = None) -> QuerySet[Job]:
    """Return the jobs a person may see; a team-bound token narrows them to its team."""
    jobs = Job.objects.filter(team__in=teams_of(user)).select_related("team", "owner", "study")
    return jobs.filter(team_id=team_id) if team_id else jobs


def artifact_path(artifact: Artifact) -> Path:
    """Return where an artifact lies; a path that leaves the directory is refused."""
    root = Path(settings.ARTIFACT_DIR).resolve()
    path = (root / artifact.path).resolve()
    if not path.is_relative_to(root):
        raise FileNotFoundError(artifact.path)
    return path
