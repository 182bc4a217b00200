"""The stored result of an overlap job, and answers to what-if questions about it, kept for a while."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, QueryDict

from cluster.core.roles import Permission, allows
from cluster.queries import role_in
from jobs.core.overlap.assembly import WorkGraph
from jobs.core.overlap.clusters import CLUSTERS, NETWORKS
from jobs.core.overlap.errors import UnknownCluster
from jobs.core.overlap.questions import BANDWIDTHS, SLOWDOWNS, Answer, Question, ask, recall
from jobs.core.states import JobKind
from jobs.models import Artifact, Job
from jobs.queries import artifact_path, jobs_for
from jobs.services.overlaps import PLAN

ASKED_POLICIES = ("round-robin", "serial")
"""Those that answer at once; the others are part of the job."""
AS_PLANNED = "as planned"
"""The job's own plan, which holds only for the job's own assumptions."""
_RESULTS_KEPT, _ANSWERS_KEPT = 8, 64
_MIB = 1 << 20


def overlap_for(request: HttpRequest, job_id: UUID) -> Job:
    """Return an overlap job its reader may see; anything else is 404."""
    job = jobs_for(request.user).filter(kind=JobKind.OVERLAP, pk=job_id).first()
    if job is None:
        raise Http404("There is no such overlap job, or it belongs to a team you are not in.")
    return job


def may(request: HttpRequest, job: Job, permission: Permission) -> bool:
    """Whether the reader's role in the job's team is enough."""
    return allows(role_in(request.user, job.team_id), permission)


def demand(request: HttpRequest, job: Job, permission: Permission) -> None:
    """Refuse a reader whose role is too low."""
    if not may(request, job, permission):
        raise PermissionDenied(f"Your role in {job.team.slug} does not allow this.")


def result_of(job: Job) -> dict[str, Any] | None:
    """The document of a finished job, or None."""
    artifact = job.artifacts.filter(kind=PLAN).order_by("-created_at").first()
    return None if artifact is None else _document(artifact.pk)


@lru_cache(_RESULTS_KEPT)
def _document(artifact_id: UUID) -> dict[str, Any] | None:
    try:
        path = artifact_path(Artifact.objects.get(pk=artifact_id))
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found["works"] = {int(tiles): WorkGraph.from_json(one) for tiles, one in found.pop("graphs").items()}
    return found


def question_of(query: QueryDict, job: Job, document: Mapping[str, Any]) -> Question:
    """The assumptions in an address; what is missing or makes no sense is as in the job."""
    tiles = query.get("tiles", "")
    bandwidth, slowdown = _number(query.get("bandwidth")), _number(query.get("slowdown"))
    budget = _number(query.get("budget"))
    known = set(document["works"])
    cluster = query.get("cluster") or ""
    slowdowns, own_budget = job.spec["slowdown"], job.spec["memory_budget"]
    own = Question(
        document["tiles"], AS_PLANNED, _hashable(job.spec["cluster"]), 1.0, slowdowns["compute"], own_budget
    )
    asked = Question(
        tiles=int(tiles) if tiles.isdigit() and int(tiles[:3]) in known else own.tiles,
        policy=policy if (policy := query.get("policy")) in ASKED_POLICIES else AS_PLANNED,
        cluster=cluster if cluster in clusters_offered() else own.cluster,
        bandwidth=bandwidth if bandwidth and 0.01 <= bandwidth <= 100 else own.bandwidth,
        slowdown=slowdown if slowdown is not None and slowdown <= 10 else own.slowdown,
        budget_bytes=own_budget if _same(budget, own_budget) else budget * _MIB if budget else None,
    )
    other = asked != own or slowdowns["compute"] != slowdowns["comm"]
    return replace(asked, policy=ASKED_POLICIES[0]) if other and asked.policy == AS_PLANNED else asked


def _same(budget_mib: float | None, budget_bytes: float | None) -> bool:
    """Whether a budget was not asked about, or is the job's own as the form shows it."""
    if budget_mib is None:
        return True
    shown = 0.0 if budget_bytes is None else budget_bytes / _MIB
    return math.isclose(budget_mib, shown, rel_tol=1e-5)


def _hashable(cluster: Any) -> Any:
    return cluster if isinstance(cluster, str) else tuple(sorted(cluster.items()))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def clusters_offered() -> list[str]:
    """Clusters to choose from: one node of each device, and several by each network."""
    return [f"{name}x8{end}" for name in CLUSTERS for end in ("", *(f"-{net}" for net in NETWORKS))]


def answer(job: Job, document: dict[str, Any], question: Question) -> Answer:
    """Plan under the question's assumptions; the same question again costs nothing."""
    artifact = job.artifacts.filter(kind=PLAN).order_by("-created_at").values_list("pk", flat=True)[0]
    return _answer(artifact, question)


@lru_cache(_ANSWERS_KEPT)
def _answer(artifact_id: UUID, question: Question) -> Answer:
    document = _document(artifact_id)
    if document is None:
        raise Http404("The result of this job is gone.")
    cluster = dict(question.cluster) if isinstance(question.cluster, tuple) else question.cluster
    meant = replace(question, cluster=cluster)
    try:
        if question.policy == AS_PLANNED:
            return recall(document["works"], replace(meant, policy=document["policy"]), document)
        return ask(document["works"], meant)
    except UnknownCluster as error:
        raise Http404(str(error)) from None


__all__ = [
    "AS_PLANNED",
    "BANDWIDTHS",
    "SLOWDOWNS",
    "answer",
    "clusters_offered",
    "overlap_for",
    "question_of",
    "result_of",
]
