"""Incidents and plans for people: what happened when, what could be done, and who may decide."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Q, QuerySet

from cluster.core.keyset import decode_cursor, encode_cursor, read_time, read_uuid
from cluster.core.roles import Permission
from cluster.models import User
from cluster.queries import teams_of, teams_where
from jobs.core.states import ReconfigurationState
from jobs.models import Reconfiguration
from telemetry.core.states import KIND_LABELS, VerdictKind, VerdictState
from telemetry.models import Verdict

PAGE = 100
ORDER = "newest-incidents"
DECIDED = 30


class IncidentPage(NamedTuple):
    """Some incidents, newest first, where the next ones begin, and how many of each state and kind."""

    items: list[Verdict]
    next_cursor: str | None
    total: int
    by_state: dict[str, int]
    by_kind: list[tuple[str, str, int]]


class Moment(NamedTuple):
    """An entry of an incident's story."""

    at: datetime | None
    title: str
    detail: str = ""
    look: str = "muted"


def verdicts_for(user: User | AnonymousUser) -> QuerySet[Verdict]:
    """Return the verdicts on jobs of a person's teams."""
    rows = Verdict.objects.filter(job__team__in=teams_of(user))
    return rows.select_related("job__team", "job__owner", "device__node")


def reconfigurations_for(user: User | AnonymousUser) -> QuerySet[Reconfiguration]:
    """Return the plans for jobs of a person's teams."""
    rows = Reconfiguration.objects.filter(job__team__in=teams_of(user))
    return rows.select_related("job__team", "job__owner", "job__training", "requester", "approver")


def waiting_for(user: User | AnonymousUser) -> QuerySet[Reconfiguration]:
    """Return the plans that wait for a decision which a person's role allows."""
    teams = teams_where(user, Permission.ADMINISTER)
    return reconfigurations_for(user).filter(state=ReconfigurationState.PROPOSED, job__team__in=teams)


def incident_page(
    user: User | AnonymousUser, filters: Mapping[str, str], *, cursor: str | None = None
) -> IncidentPage:
    """Return one page of incidents; filters: `state`, `kind`. Raises InvalidQuery for a foreign cursor."""
    rows = verdicts_for(user)
    states = dict(rows.order_by().values_list("state").annotate(n=Count("id")))
    if state := filters.get("state"):
        rows = rows.filter(state=state)
    kinds = dict(rows.order_by().values_list("kind").annotate(n=Count("id")))
    if kind := filters.get("kind"):
        rows = rows.filter(kind=kind)
    total = kinds.get(kind, 0) if kind else sum(kinds.values())
    if cursor:
        at, pk = decode_cursor(cursor, ORDER, [read_time, read_uuid])
        rows = rows.filter(Q(opened_at__lt=at) | Q(opened_at=at, pk__lt=pk))
    items = list(rows.order_by("-opened_at", "-id")[: PAGE + 1])
    more = len(items) > PAGE
    items = items[:PAGE]
    key = encode_cursor(ORDER, [items[-1].opened_at, items[-1].pk]) if more else None
    return IncidentPage(
        items,
        key,
        total,
        {s.value: states.get(s.value, 0) for s in VerdictState},
        [(k.value, KIND_LABELS[k], kinds[k.value]) for k in VerdictKind if k.value in kinds],
    )


def plans_of(verdict: Verdict) -> list[Reconfiguration]:
    """Return the plans that answer to a verdict, newest first."""
    rows = Reconfiguration.objects.filter(verdict_id=verdict.pk, job_id=verdict.job_id)
    return list(rows.select_related("job__training", "job__team", "requester", "approver"))


def story_of(verdict: Verdict, plans: list[Reconfiguration]) -> list[Moment]:
    """Return what happened from the first sample to the outcome, in order of time."""
    story = []
    if verdict.first_sample_at:
        story.append(Moment(verdict.first_sample_at, "First sign", _step(verdict.first_step)))
    label = KIND_LABELS[VerdictKind(verdict.kind)]
    story.append(Moment(verdict.opened_at, f"Verdict: {label}", _step(verdict.detected_step), "bad"))
    if verdict.planned_at:
        story.append(Moment(verdict.planned_at, "Answer of the recovery loop", verdict.answer))
    for plan in plans:
        story += moments_of(plan)
    for test in verdict.burn_ins.all():
        story.append(Moment(test.started_at, "Burn-in of the device begun"))
        if test.ended_at:
            factor = f"{test.factor:.2f} times the time of its peers" if test.factor else ""
            look = "good" if test.state == "passed" else "bad"
            story.append(Moment(test.ended_at, f"Burn-in {test.state}", factor, look))
    if verdict.cleared_at:
        story.append(Moment(verdict.cleared_at, "Cleared", verdict.reason, "good"))
    return sorted(story, key=lambda moment: moment.at or verdict.opened_at)


def moments_of(plan: Reconfiguration) -> list[Moment]:
    """Return what happened to one plan."""
    state = ReconfigurationState
    story = [
        Moment(plan.created_at, f"Plan proposed: {plan.kind}", f"asked for by {plan.requester}", "warning")
    ]
    rejected = plan.state == state.REJECTED
    if plan.decided_at:
        who = "the job's policy" if plan.by_policy else str(plan.approver or "")
        words = [f"by {who}"] if who else []
        words += [f"“{plan.comment}”"] if plan.comment else []
        words += [f"glass broken: {plan.break_glass}"] if plan.break_glass else []
        title, look = ("Plan rejected", "muted") if rejected else ("Plan approved", "active")
        story.append(Moment(plan.decided_at, title, ", ".join(words), look))
    if plan.started_at:
        story.append(Moment(plan.started_at, "Reconfiguration begun", "", "active"))
    if plan.ended_at and not rejected:
        look = {state.EXECUTED: "good", state.FAILED: "bad"}.get(state(plan.state), "muted")
        story.append(
            Moment(plan.ended_at, f"Plan {plan.state}", plan.reason or outcome_words(plan.outcome), look)
        )
    return story


def outcome_words(outcome: Mapping[str, Any]) -> str:
    """Return what was measured after a plan, in one line."""
    words = []
    if isinstance(pause := outcome.get("pause_s"), int | float):
        words.append(f"pause of {pause:.2f} s")
    if isinstance(after := outcome.get("iteration_s"), int | float):
        words.append(f"{after:.3f} s per iteration afterwards")
    return ", ".join(words)


def _step(step: int | None) -> str:
    return f"step {step}" if step is not None else ""
