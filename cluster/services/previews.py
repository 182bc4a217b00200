"""What if: the live queue played forward under other quotas, policies or fewer nodes. Nothing is changed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils import timezone

from cluster.core.bodies import PreviewBody
from cluster.core.decision import ClusterState, Decision
from cluster.core.errors import InvalidBody, PreviewTooLarge
from cluster.core.fairness.quota import TeamQuota
from cluster.core.queue.units import job_of
from cluster.core.simulator.whatif import preview_difference, preview_queue
from cluster.core.states import ClusterName
from cluster.services.live_state import LiveState, read_live, team_quota
from cluster.services.queue import coordinator_of

MOST_WAITING = 300  # the first of the queue; those behind them change nothing for these
MOST_CPU_S = 20.0


@dataclass(frozen=True)
class Previews:
    """Plays of one queue: as it is, and for each policy asked about; job ids are those of jobs."""

    now_s: float
    policy: str
    before: dict[str, Any]
    after: list[dict[str, Any]]
    moved: list[list[dict[str, Any]]]
    left_out: int


def preview(name: ClusterName, body: PreviewBody) -> Previews:
    """Play the queue as it is, and as it would be.

    Raises:
        InvalidBody: an unknown team or node.
        PreviewTooLarge: it takes too long.
    """
    coordinator = coordinator_of(name)
    live = read_live(coordinator, timezone.now())
    state, left_out = _first_of(live)
    teams = _teams(state, body)
    unknown = sorted(set(body.without_nodes) - {node.name for node in state.nodes})
    if unknown:
        raise InvalidBody([("/without_nodes", f"there is no node {unknown[0]!r}")])
    budget = _Budget()
    before = _jobs_only(preview_queue(state, live.now_s, policy=coordinator.policy, watch=budget))
    after = []
    for policy in body.policies or (coordinator.policy,):
        changed = preview_queue(
            state, live.now_s, policy=policy, teams=teams, without_nodes=body.without_nodes, watch=budget
        )
        after.append(_jobs_only(changed))
    moved = [preview_difference(before, entry) for entry in after]
    return Previews(live.now_s, coordinator.policy, before, after, moved, left_out)


class _Budget:
    """Ends a play that takes too long; called after each decision of it."""

    def __init__(self) -> None:
        self.until = time.process_time() + MOST_CPU_S

    def __call__(self, before: ClusterState, decision: Decision, after: ClusterState) -> None:
        if time.process_time() > self.until:
            raise PreviewTooLarge(
                "this queue takes too long to play forward here: compare policies on a trace of it with "
                "`forebay schedule`"
            )


def _first_of(live: LiveState) -> tuple[ClusterState, int]:
    """Return the state with the jobs that run and the first that wait."""
    running = [view for view in live.state.jobs if view.running]
    # Whoever is about to leave has left. A further device of an elastic job stands in nobody's way.
    waiting = [
        replace(view, stopping=False, placement=(), started_s=None)
        for view in live.state.jobs
        if not view.running and "/" not in view.id
    ]
    kept = waiting[:MOST_WAITING]
    return replace(live.state, jobs=tuple(running + kept)), len(waiting) - len(kept)


def _teams(state: ClusterState, body: PreviewBody) -> Sequence[TeamQuota]:
    known = {team.name: team for team in state.teams}
    for slug, quota in body.quotas.items():
        if slug not in known:
            raise InvalidBody([(f"/quotas/{slug}", "there is no such team")])
        known[slug] = team_quota(slug, quota.kinds, quota.shares, known[slug].parent)
    return list(known.values())


def _jobs_only(play: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the further devices of elastic jobs, which stand in no line."""
    jobs = {name: row for name, row in play["jobs"].items() if "/" not in name}
    stranded = {job_of(name): reason for name, reason in play["stranded"].items()}
    return {**play, "jobs": jobs, "stranded": stranded}
