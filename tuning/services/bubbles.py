"""Lending as the database knows it: the operator's switch, rests after a slowdown, what studies have used."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from cluster.core.coordinator import LendingPolicy
from cluster.models import Device
from cluster.services.accounting import add_recovered
from cluster.services.queue import set_lends
from jobs.core.errors import JobMovedOn
from jobs.core.states import ENDED, JobKind
from jobs.models import Job
from jobs.services.lifecycle import lock_job
from journal.services import Fact, audit, record
from tuning.models import BubbleUse, Lending

SUMS = ("waited_s", "lent_s", "used_s", "leaked_s")


@transaction.atomic
def switch_lending(*, job_id: UUID, lending: bool, actor: str, reason: str = "") -> Lending:
    """Stop the lending of a training job's bubbles at once, or allow it again; the same twice is no news.

    Allowing it ends a rest after an automatic stop as well. Raises JobMovedOn where there is nothing to lend.
    """
    job = lock_job(job_id)
    _demand_lender(job)
    row, _ = Lending.objects.get_or_create(job=job)
    if row.switched_off == (not lending) and row.rests_until is None:
        return row
    row.switched_off, row.actor, row.reason = not lending, actor[:200], reason[:1000]
    row.stops, row.rests_until = 0, None
    row.save()
    set_lends(job.pk, lending)
    data = {"id": str(job.pk), "lending": lending, "actor": actor, "reason": reason}
    record(job.stream, [Fact("lending.switched", data)])
    audit(actor=actor, action="job.lending", target=f"job:{job.pk}", team_id=job.team_id, detail=data)
    return row


def _demand_lender(job: Job) -> None:
    if job.kind != JobKind.TRAINING:
        raise JobMovedOn(f"it is a {job.kind}; only training jobs lend bubbles")
    if job.state in ENDED:
        raise JobMovedOn(f"it is {job.state}")
    if not job.spec.get("lend_bubbles"):
        raise JobMovedOn("its spec says lend_bubbles: false")


@transaction.atomic
def rest_lending(*, job_id: UUID, reason: str) -> Lending:
    """Let a job's bubbles rest because guests slowed it by too much; each time for twice as long."""
    job = lock_job(job_id)
    row, _ = Lending.objects.get_or_create(job=job)
    now = timezone.now()
    if row.switched_off or (row.rests_until is not None and row.rests_until > now):
        return row
    row.stops += 1
    pause_s = policy_of(job).pause_s(row.stops)
    row.rests_until, row.reason, row.actor = now + timedelta(seconds=pause_s), reason[:1000], ""
    row.save()
    data = {"id": str(job.pk), "reason": reason, "stops": row.stops, "rests_s": pause_s}
    record(job.stream, [Fact("lending.stopped", data)])
    return row


def policy_of(job: Job) -> LendingPolicy:
    """Return what a training job allows its guests."""
    return LendingPolicy.of(job.spec.get("lend_limit"))


def not_lending(job_ids: Iterable[UUID | str]) -> set[str]:
    """Return those of these jobs whose bubbles nobody may use now."""
    off = Q(switched_off=True) | Q(rests_until__gt=timezone.now())
    return {str(pk) for pk in Lending.objects.filter(off, pk__in=list(job_ids)).values_list("pk", flat=True)}


@transaction.atomic
def add_sample(
    *,
    study: Job,
    board: str,
    lender: UUID | None,
    rank: int | None,
    device: Device | None,
    sample: Mapping[str, Any],
    exclusive_s: float,
) -> None:
    """Add what a board's figures say to what the study has had of it, and tell both jobs' streams."""
    if lender is not None and not Job.objects.filter(pk=lender).exists():
        lender = None
    row, _ = BubbleUse.objects.select_for_update().get_or_create(
        study=study,
        board=board,
        defaults={"lender_id": lender, "rank": rank, "device": device, "device_label": str(device or board)},
    )
    for name in SUMS:
        setattr(row, name, getattr(row, name) + sample[name])
    row.watched_s += sample["covers_s"]
    row.steps += sum(guest["steps"] for guest in sample["guests"])
    row.exclusive_s += exclusive_s
    same = row.sample.get("epoch") == sample["epoch"]
    row.slots = _added(row.slots if same else {}, sample)
    row.sample = dict(sample)
    row.save()
    add_recovered(
        team_id=study.team_id,
        owner_id=study.owner_id,
        kind=device.kind if device is not None else "",
        device_s=exclusive_s,
        now=timezone.now(),
    )
    data = {**sample, "board": f"bubble:{board}", "lender": lender and str(lender), "study": str(study.pk)}
    for stream in [study.stream, *([f"job:{lender}"] if lender else [])]:
        record(stream, [Fact("bubble.sample", data)])


def _added(slots: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sums by slot with a sample's added; slots of another layout are forgotten by the caller."""
    found = {slot: {**row, "skipped": dict(row["skipped"])} for slot, row in slots.items()}

    def slot_of(number: int) -> dict[str, Any]:
        empty: dict[str, Any] = {"lent_s": 0.0, "used_s": 0.0, "seen": 0, "skipped": {}}
        return found.setdefault(str(number), empty)

    for row in sample["slots"]:
        slot = slot_of(row["slot"])
        slot |= {name: slot[name] + row[name] for name in ("lent_s", "used_s", "seen")}
        slot |= {"expected_s": row["expected_s"], "median_s": row["median_s"]}
    for row in sample["skipped"]:
        skipped = slot_of(row["slot"])["skipped"]
        before = skipped.get(row["rule"], {"count": 0})
        skipped[row["rule"]] = {"count": before["count"] + row["count"], "reason": row["reason"]}
    return found
