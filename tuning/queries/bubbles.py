"""Lent bubbles for people: how they are used, what it costs the job that lends, and where a study runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AnonymousUser

from cluster.core.coordinator import LendingPolicy
from cluster.models import User
from jobs.core.states import ENDED, JobState
from jobs.models import Iteration, Job
from jobs.queries import jobs_for
from journal.models import Event
from telemetry.core.figures.bubble_use import Use
from telemetry.core.figures.pipeline import Piece, Track, chunk_name, measured_track
from tuning.models import BubbleUse, Container, Lending, Target

FRESH_S = 15.0  # figures older than this are not what happens now
STARVED = 0.3  # of the time that guests were given
MOST_SAMPLES = 400
LABEL = "bubble:job-"


@dataclass(frozen=True)
class SlotRow:
    """A bubble of the schedule: what it waits for, how often it came, how it was used, and if not, why."""

    slot: int
    before: str
    seen: int
    expected_s: float | None
    median_s: float | None
    share: float | None
    skipped: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class StageRow:
    """The bubbles of one rank in the hands of one study; `study` is None where its reader may not see it.

    `is_latest` says that no other study had the rank's bubbles after it.
    """

    use: BubbleUse
    study: Job | None
    is_live: bool
    share: float | None
    now: float | None
    leak: float | None
    slots: tuple[SlotRow, ...]
    is_latest: bool = False

    @property
    def slowdown(self) -> dict[str, Any] | None:
        """What guests cost the job, with its 95 % interval; None while nothing can be said."""
        found: dict[str, Any] | None = self.use.sample.get("slowdown")
        return found

    @property
    def is_starved(self) -> bool:
        """Whether bubbles are given, and other programs take most of their time."""
        got = self.use.sample.get("got")
        return self.is_live and got is not None and got < STARVED

    @property
    def decision(self) -> dict[str, Any]:
        """The latest decision on lending, and why."""
        found: dict[str, Any] = self.use.sample.get("decision") or {}
        return found


@dataclass(frozen=True)
class Bubbles:
    """Everything about a training job's bubbles.

    Attributes:
        status: never, off, rests, ended, unused or used.
        recovered_s: device time that trials got, measured.
        worth_s: what their steps take on devices of their own, estimated by the studies' profiles.
        extra_s: device time by which guests have lengthened the job, from the measured slowdown.
        device_s: the job's device time while its bubbles were used.
    """

    status: str
    lending: Lending | None
    limit: float
    stages: tuple[StageRow, ...]
    waited_s: float
    recovered_s: float
    worth_s: float
    extra_s: float
    device_s: float
    slowdown: dict[str, Any] | None

    @property
    def share(self) -> float | None:
        """How much of the waiting was used."""
        return self.recovered_s / self.waited_s if self.waited_s else None

    @property
    def devices_worth(self) -> float | None:
        """How many devices of their own do the trials' work in the same time (PipeFill's view)."""
        return self.worth_s / self.watched_s if self.watched_s else None

    @property
    def saving(self) -> float | None:
        """What the work is worth, less what it cost, in shares of the job's device time (FreeRide's view)."""
        return (self.worth_s - self.extra_s) / self.device_s if self.device_s else None

    @property
    def watched_s(self) -> float:
        """Time on the wall in which bubbles were used."""
        return watched_s([stage.use for stage in self.stages])

    @property
    def relative(self) -> float | None:
        """Speed of the trials in bubbles, in shares of their speed on as many devices of their own."""
        boards = len({stage.use.board for stage in self.stages})
        return self.devices_worth / boards if boards and self.devices_worth is not None else None


def bubbles_of(job: Job, user: User | AnonymousUser, now: datetime) -> Bubbles:
    """Return how a training job's bubbles are used, as this reader may see it."""
    uses = list(
        BubbleUse.objects.filter(lender=job).select_related("study", "device").order_by("rank", "began_at")
    )
    visible = jobs_for(user).in_bulk({use.study_id for use in uses})
    names = slot_names(job)
    latest = {use.board: use.pk for use in sorted(uses, key=lambda use: use.sampled_at)}
    stages = tuple(
        replace(
            _stage(use, visible.get(use.study_id), names, job, now), is_latest=latest[use.board] == use.pk
        )
        for use in uses
    )
    live = [stage for stage in stages if stage.is_live] or list(stages)
    slow = [stage.slowdown for stage in live if stage.slowdown is not None]
    worst = max(slow, key=lambda found: float(found["value"]), default=None)
    device_s = watched_s(uses) * max(int(job.spec.get("devices") or 1), 1)
    lending = Lending.objects.filter(pk=job.pk).first()
    return Bubbles(
        status=_status(job, lending, stages, now),
        lending=lending,
        limit=LendingPolicy.of(job.spec.get("lend_limit")).limit,
        stages=stages,
        waited_s=sum(use.waited_s for use in uses),
        recovered_s=sum(use.used_s for use in uses),
        worth_s=sum(use.exclusive_s for use in uses),
        extra_s=max(float(worst["value"]), 0.0) * device_s if worst else 0.0,
        device_s=device_s,
        slowdown=worst,
    )


def watched_s(uses: Sequence[BubbleUse]) -> float:
    """Return the time on the wall that figures cover: a rank's studies follow one another, ranks do not."""
    by_board: dict[str, float] = {}
    for use in uses:
        by_board[use.board] = by_board.get(use.board, 0.0) + use.watched_s
    return max(by_board.values(), default=0.0)


def _status(job: Job, lending: Lending | None, stages: Sequence[StageRow], now: datetime) -> str:
    if not job.spec.get("lend_bubbles"):
        return "never"
    if job.state in ENDED:
        return "ended"
    if lending is not None and lending.switched_off:
        return "off"
    if lending is not None and lending.rests_until is not None and lending.rests_until > now:
        return "rests"
    return "used" if any(stage.is_live for stage in stages) else "unused"


def _stage(
    use: BubbleUse, study: Job | None, names: dict[tuple[int, int], str], job: Job, now: datetime
) -> StageRow:
    fresh = job.state == JobState.RUNNING and now - use.sampled_at < timedelta(seconds=FRESH_S)
    slots = tuple(
        _slot(int(slot), row, names.get((use.rank if use.rank is not None else -1, int(slot)), ""))
        for slot, row in sorted(use.slots.items(), key=lambda item: int(item[0]))
    )
    total_s = use.used_s + use.leaked_s
    return StageRow(
        use=use,
        study=study,
        is_live=fresh,
        share=use.used_s / use.waited_s if use.waited_s else None,
        now=use.sample.get("utilisation") if fresh else None,
        leak=use.leaked_s / total_s if total_s else None,
        slots=slots,
    )


def _slot(number: int, row: dict[str, Any], before: str) -> SlotRow:
    skipped = sorted(row.get("skipped", {}).values(), key=lambda found: -int(found["count"]))
    return SlotRow(
        slot=number,
        before=before,
        seen=row["seen"],
        expected_s=row.get("expected_s"),
        median_s=row.get("median_s"),
        share=row["used_s"] / row["lent_s"] if row["lent_s"] else None,
        skipped=tuple((int(found["count"]), str(found["reason"])) for found in skipped),
    )


def _latest_ranks(job: Job) -> tuple[int | None, list[dict[str, Any]]]:
    row = Iteration.objects.filter(run_id=job.pk, ranks__isnull=False).order_by("-step").first()
    return (row.step, row.ranks) if row is not None and isinstance(row.ranks, list) else (None, [])


def slot_names(job: Job) -> dict[tuple[int, int], str]:
    """Return (rank, slot) -> what the rank waits for there, as its latest iteration says."""
    _, ranks = _latest_ranks(job)
    names: dict[tuple[int, int], str] = {}
    for row in ranks:
        chunks, rank = row.get("chunks", []), int(row["rank"])
        names |= {
            (rank, slot): chunk_name(str(chunk["type"]), chunk["microbatch"])
            for slot, chunk in enumerate(chunks)
        }
        names[rank, len(chunks)] = "the others, at the end"
    return names


def tracks_with_guests(job: Job) -> tuple[int | None, list[Track]]:
    """Return the latest measured iteration, and under each rank that lends how much of its bubbles was used.

    A bubble's bar is as long as the share that trials lately had of that slot.
    """
    step, ranks = _latest_ranks(job)
    shares: dict[int, dict[int, float]] = {}
    for use in BubbleUse.objects.filter(lender=job, rank__isnull=False).order_by("sampled_at"):
        shares[use.rank or 0] = {
            row["slot"]: row["used_s"] / row["lent_s"] for row in use.sample.get("slots", []) if row["lent_s"]
        }
    tracks = []
    for row in sorted(
        ranks, key=lambda row: (row.get("replica") or 0, row.get("stage") or 0, row.get("rank") or 0)
    ):
        if not row.get("chunks"):
            continue
        label = f"r{row.get('rank')} · replica {row.get('replica')}, stage {row.get('stage')}"
        tracks.append(measured_track(label, row))
        if found := shares.get(int(row.get("rank") or 0)):
            tracks.append(Track(f"trials beside r{row.get('rank')}", _guest_pieces(row, found)))
    return step, tracks


def _guest_pieces(row: dict[str, Any], shares: dict[int, float]) -> list[Piece]:
    """Return what guests had of each bubble of an iteration, from the bubble's begin on."""
    chunks, pieces, clock = row["chunks"], [], 0.0
    waits: dict[int, float] = {}
    for bubble in row.get("bubbles", []):
        slot = min(int(bubble["slot"]), len(chunks))
        waits[slot] = waits.get(slot, 0.0) + float(bubble["seconds"])
    for index in range(len(chunks) + 1):
        length_s, share = waits.get(index, 0.0), min(shares.get(index, 0.0), 1.0)
        if share > 0 and length_s:
            pieces.append(Piece("guest", clock, clock + share * length_s, f"trials use {share:.0%} of it"))
        clock += length_s
        if index < len(chunks):
            clock += float(chunks[index]["seconds"])
    return pieces


def moments_of(job: Job, now: datetime) -> list[Use]:
    """Return the latest samples of a job's bubbles, oldest first; after its end, up to its end."""
    rows = Event.objects.filter(stream_id=job.stream, kind="bubble.sample").order_by("-seq")[:MOST_SAMPLES]
    rank_of = dict(BubbleUse.objects.filter(lender=job).values_list("board", "rank"))
    end = job.ended_at or now
    return [
        Use(
            lane=f"r{rank_of.get(row.data['board'].removeprefix('bubble:'), '?')}",
            ago_s=max((end - row.at).total_seconds(), 0.0),
            share=row.data["utilisation"],
            lends=row.data["lending"],
        )
        for row in reversed(rows)
    ]


def lenders_of_study(job: Job, user: User | AnonymousUser) -> tuple[list[Job], int, int]:
    """Return (the training jobs in whose bubbles a study runs now, runs in bubbles, runs elsewhere)."""
    if job.state != JobState.RUNNING:
        return [], 0, 0
    labels = list(
        Container.objects.filter(job=job, end_s__isnull=True).values_list("device_label", flat=True)
    )
    labels += Target.objects.filter(job=job, state="running").values_list("device_label", flat=True)
    lent = [label for label in labels if label.startswith("bubble:")]
    ids = {UUID(label[len(LABEL) :].rpartition("-")[0]) for label in lent if label.startswith(LABEL)}
    found = jobs_for(user).in_bulk(ids)
    return sorted(found.values(), key=lambda lender: lender.name), len(lent), len(labels) - len(lent)


def waits_for_bubbles(job: Job) -> bool:
    """Whether a study that runs in bubbles only finds none."""
    return job.state == JobState.RUNNING and job.substate == "waiting for bubbles"
