"""Bubbles as devices of a study: which boards it may use now, one study to a board."""

import contextlib
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from cluster.core.coordinator.slots import STEP_SHARE
from cluster.core.errors import LeaseLost
from cluster.models import Device
from cluster.services.leases import Held, release_lease, renew_lease, take_lease
from jobs.models import Job
from tuning.core.study import Study as Brain
from tuning.core.study.lent import BUBBLES, is_lent
from tuning.services.bubbles import add_sample, not_lending, policy_of, rest_lending
from workers.squeezer.board import Board
from workers.squeezer.errors import SqueezerError
from workers.squeezer.lengths import SlotLengths
from workers.squeezer.places import board_path, boards_folder
from workers.squeezer.processes import lives
from workers.squeezer.rules import Rules
from workers.squeezer.samples import joined
from workers.training.lending import lender_of, rank_of

GRACE_S = 20.0  # a board that is gone stays on the list of what has to be left for so long
SAMPLE_S = 2.0
STALE_S = 60.0
ROOM_NEWS = 1.25  # how much longer or shorter bubbles must have become for it to be news
NO, ALLOWED, ONLY = "no", "allowed", "only"


def bubbles_first(labels: set[str]) -> list[str]:
    """Return labels in the order in which containers take them: early rungs come first, and go to bubbles."""
    return sorted(labels, key=lambda label: (not is_lent(label), label))


def board_of(label: str) -> str:
    """The file of a bubble device's board."""
    return str(board_path(label.removeprefix(BUBBLES)))


class BubbleDevices:
    """The bubbles a study holds. A lease per board keeps other studies away.

    Attributes:
        labels: label -> device of everything lent now.
        leaving: label -> device of what was lent until a moment ago.
    """

    def __init__(self, job: Job, owner: str, seconds: float) -> None:
        self.owner, self.seconds = owner, seconds
        self.wanted = job.spec.get("bubbles", ALLOWED) != NO
        self.labels: dict[str, Device] = {}
        self.leaving: dict[str, Device] = {}
        self._leases: dict[str, Held] = {}
        self._gone_s: dict[str, float] = {}
        self._sampled_s = 0.0
        self._rooms: dict[str, float] = {}

    def look(self, busy: set[str]) -> list[str]:
        """See which boards there are now; return the labels that are given up.

        Whoever's bubbles may not be used any more gets them back at once: what runs there has no time to
        write anything. From a board that is merely gone a guest can still save what it has.
        """
        if not self.wanted:
            return []
        found, now = _lent_now(), time.monotonic()
        lent, stopped = _allowed(found)
        gone = []
        for label in [label for label in self.labels if label not in lent or not self._renewed(label)]:
            if label in stopped:
                self.labels.pop(label)
                gone.append(label)
                continue
            self.leaving[label] = self.labels.pop(label)
            self._gone_s[label] = now
        gone += [label for label, since in self._gone_s.items() if label not in busy or now - since > GRACE_S]
        for label in gone:
            self._forget(label)
        for label, device in lent.items():
            if label not in self.labels and label not in self.leaving and self._take(label):
                self.labels[label] = device
        return gone

    def rooms_changed(self) -> dict[str, float] | None:
        """Return the longest step that each board's bubbles hold, or None where that is no news."""
        rooms = {label: room for label in self.labels if (room := room_of(label)) is not None}
        same = rooms.keys() == self._rooms.keys() and all(
            1 / ROOM_NEWS < rooms[label] / self._rooms[label] < ROOM_NEWS for label in rooms
        )
        if same:
            return None
        self._rooms = rooms
        return dict(rooms)

    def samples_due(self) -> bool:
        """Whether it is time to tell of the boards' figures again."""
        due = bool(self.labels) and time.monotonic() - self._sampled_s >= SAMPLE_S
        if due:
            self._sampled_s = time.monotonic()
        return due

    def _renewed(self, label: str) -> bool:
        try:
            renew_lease(self._leases[label], seconds=self.seconds)
        except LeaseLost:
            return False
        return True

    def _take(self, label: str) -> bool:
        lease = take_lease(name=label, owner=self.owner, seconds=self.seconds)
        if lease is not None:
            self._leases[label] = lease
        return lease is not None

    def _forget(self, label: str) -> None:
        self.leaving.pop(label, None)
        self._gone_s.pop(label, None)
        lease = self._leases.pop(label, None)
        if lease is not None:
            release_lease(lease)


def _allowed(found: Mapping[str, Device]) -> tuple[dict[str, Device], set[str]]:
    """Return (the boards that may be used, the labels of those that somebody or something has stopped).

    A job that this platform does not know is one of another platform of the same user: its bubbles are for
    that platform's studies.
    """
    lenders = {label: lender_of(label.removeprefix(BUBBLES)) for label in found}
    named = {lender for lender in lenders.values() if lender}
    ours = (
        {str(pk) for pk in Job.objects.filter(pk__in=named).values_list("pk", flat=True)} if named else set()
    )
    off = not_lending(ours)
    stopped = {label for label, lender in lenders.items() if lender in off}
    foreign = {label for label, lender in lenders.items() if lender and lender not in ours}
    return {label: found[label] for label in found.keys() - stopped - foreign}, stopped


def _lent_now() -> dict[str, Device]:
    """Return the bubble devices of this node: every board whose owner lives, whoever that is."""
    boards = {
        BUBBLES + path.stem: board for path in boards_folder().glob("*.board") if (board := _open(path))
    }
    if not boards:
        return {}
    here = Device.objects.filter(node__name=socket.gethostname()).select_related("node").order_by("index")
    devices = {device.index: device for device in here}
    found = {label: devices.get(board.device) for label, board in boards.items()}
    return {label: device for label, device in found.items() if device is not None}


def _open(path: Path) -> Board | None:
    try:
        board = Board(path)
    except SqueezerError:
        return None
    if not lives(*board.owner):
        _clear_away(path)
        return None
    return None if board.closed else board


def _clear_away(path: Path) -> None:
    """Remove what a dead owner has left, unless it is so young that a new owner may just have made it."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > STALE_S:
            path.unlink()


def tell_samples(
    study: Job, brain: Brain, labels: Mapping[str, Device], samples: Mapping[str, list[dict[str, Any]]]
) -> None:
    """Write down what each board's figures say since the last time; a job that was slowed too much rests."""
    for label, rows in samples.items():
        if not rows:
            continue
        name, sample = label.removeprefix(BUBBLES), joined(rows)
        lender, rank = lender_of(name), rank_of(name)
        add_sample(
            study=study,
            board=name,
            lender=UUID(lender) if lender else None,
            rank=rank,
            device=labels.get(label),
            sample=sample,
            exclusive_s=sum(_exclusive_s(brain, guest) for guest in sample["guests"]),
        )
        stop = next((row["decision"] for row in rows if row["decision"]["action"] == "stop"), None)
        if stop is not None and lender is not None:
            rest_lending(job_id=UUID(lender), reason=stop["reason"])


def _exclusive_s(brain: Brain, guest: Mapping[str, Any]) -> float:
    """Seconds that a guest's steps take on a device of its own, by the study's profiles; 0 if none says."""
    container = brain.state.containers.get(guest["run"] or "")
    if container is not None:
        size = max(len(brain.state.members(container)), 1)
        return float(guest["steps"] * brain.state.profile_of(container.shape).seconds(size))
    target = next((t for t in brain.targets if t.run == guest["run"]), None)
    shape = brain.trials[target.trial].shape if target is not None else ""
    return float(guest["steps"] * brain.state.target_step_s.get(shape, 0.0))


def room_of(label: str) -> float | None:
    """Return the longest step, in seconds, that a board's bubbles hold; None while too few have passed."""
    board = _open(board_path(label.removeprefix(BUBBLES)))
    if board is None:
        return None
    lengths, slots = SlotLengths(), set()
    for bubble in board.passed(0):
        lengths.note(bubble.slot, bubble.left_ns - bubble.entered_ns)
        slots.add(bubble.slot)
    longest_ns = max((lengths.low_ns(slot) for slot in slots), default=0)
    return STEP_SHARE * longest_ns / 1e9 or None


def rules_of(label: str) -> Rules:
    """Return how guests are held to a board's bubbles: its job may allow another slowdown than the usual."""
    lender = lender_of(label.removeprefix(BUBBLES))
    job = Job.objects.filter(pk=lender).first() if lender else None
    return Rules() if job is None else Rules(lending=policy_of(job))
