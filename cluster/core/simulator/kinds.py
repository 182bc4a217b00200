"""Studies on a cluster with two generations of devices, with and without an eye for them (simulated).

A study runs its rungs one after the other, each as containers that need one device; the next rung starts
when the last container of the one before has ended. When the first rung, and with it more than half of the
trials, has ended, a target begins as well. The study is done when its rungs and its target are.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.core.coordinator.kinds import TrialNeeds, place_trial
from cluster.core.policies.hpo import KindOffer


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A generation: how many, how old (0: newest), its memory."""

    name: str
    count: int
    age: int
    memory_bytes: int = 2**34


@dataclass(frozen=True, slots=True)
class ArrivingStudy:
    """A study.

    Attributes:
        rungs: per rung the containers and the seconds of each on the newest kind.
        target_s: of the target on the newest kind.
        target_activity: share of the newest device a target keeps busy.
        fused_slowdown: run time of a container on the older kind over that on the newest.
        target_slowdown: the same for the target.
    """

    arrival_s: float
    rungs: tuple[tuple[int, float], ...]
    target_s: float
    target_activity: float
    fused_slowdown: float
    target_slowdown: float


@dataclass(frozen=True, slots=True)
class Piece:
    """A container or a target that waits for a device."""

    study: int
    is_target: bool
    seconds: float
    slowdown: float
    activity: float
    study_left_s: float


Free = dict[str, int]  # free devices of each kind
Chooser = Callable[[Piece, Sequence[KindOffer], Free, np.random.Generator], str]


def blind(piece: Piece, offers: Sequence[KindOffer], free: Free, rng: np.random.Generator) -> str:
    """Any free device, each as likely as every other."""
    counts = np.array([free[offer.kind] for offer in offers], dtype=float)
    return offers[int(rng.choice(len(offers), p=counts / counts.sum()))].kind


def newest_first(piece: Piece, offers: Sequence[KindOffer], free: Free, rng: np.random.Generator) -> str:
    """The newest kind that is free, whoever asks."""
    return min(offers, key=lambda offer: offer.age).kind


def by_activity(piece: Piece, offers: Sequence[KindOffer], free: Free, rng: np.random.Generator) -> str:
    """The Coordinator's rule."""
    left_s = max(piece.study_left_s, piece.seconds)
    needs = TrialNeeds(piece.is_target, piece.activity, 0, piece.seconds, left_s)
    return place_trial(needs, offers).kind or offers[0].kind


@dataclass
class _Progress:
    rung: int = 0
    left: int = 0
    ended_trials: int = 0
    target_done: bool = False
    target_asked: bool = False
    done_s: float = -1.0


@dataclass
class _Cluster:
    kinds: Sequence[DeviceKind]
    studies: Sequence[ArrivingStudy]
    choose: Chooser
    rng: np.random.Generator
    free: Free = field(default_factory=dict)
    queue: list[Piece] = field(default_factory=list)
    ends: list[tuple[float, int, Piece, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = {kind.name: kind.count for kind in self.kinds}
        self.progress = [_Progress() for _ in self.studies]
        self.order = itertools.count()

    def start_rung(self, study: int) -> None:
        """Queue the containers of a study's present rung."""
        spec, progress = self.studies[study], self.progress[study]
        count, seconds = spec.rungs[progress.rung]
        progress.left = count
        piece = Piece(study, False, seconds, spec.fused_slowdown, 1.0, 0.0)
        self.queue += [piece] * count

    def serve(self, now_s: float) -> None:
        """Give free devices to those who wait, first come first served."""
        while self.queue and any(self.free.values()):
            piece = self.queue.pop(0)
            offers = [
                KindOffer(kind.name, kind.age, kind.memory_bytes, piece.slowdown if kind.age else 1.0)
                for kind in self.kinds
                if self.free[kind.name]
            ]
            kind = self.choose(piece, offers, self.free, self.rng)
            self.free[kind] -= 1
            slow = next(offer.slowdown for offer in offers if offer.kind == kind)
            heapq.heappush(self.ends, (now_s + piece.seconds * slow, next(self.order), piece, kind))

    def end(self, piece: Piece, kind: str, now_s: float) -> None:
        """Book the end of a piece."""
        self.free[kind] += 1
        progress, spec = self.progress[piece.study], self.studies[piece.study]
        if piece.is_target:
            progress.target_done = True
        else:
            progress.left -= 1
            if not progress.left:
                progress.rung += 1
                if progress.rung < len(spec.rungs):
                    self.start_rung(piece.study)
                if not progress.target_asked:
                    progress.target_asked = True
                    self.queue.append(self._target(piece.study))
        if progress.target_done and progress.rung == len(spec.rungs):
            progress.done_s = now_s

    def _target(self, study: int) -> Piece:
        spec, progress = self.studies[study], self.progress[study]
        left_s = sum(seconds for _, seconds in spec.rungs[progress.rung :])
        return Piece(study, True, spec.target_s, spec.target_slowdown, spec.target_activity, left_s)


def completion_times_s(
    studies: Sequence[ArrivingStudy], kinds: Sequence[DeviceKind], choose: Chooser, rng: np.random.Generator
) -> list[float]:
    """Return every study's time from arrival to end."""
    cluster = _Cluster(kinds, studies, choose, rng)
    arrivals = sorted(range(len(studies)), key=lambda index: studies[index].arrival_s)
    while arrivals or cluster.ends:
        next_end_s = cluster.ends[0][0] if cluster.ends else float("inf")
        if arrivals and studies[arrivals[0]].arrival_s < next_end_s:
            now_s = studies[arrivals[0]].arrival_s
            cluster.start_rung(arrivals.pop(0))
        else:
            now_s, _, piece, kind = heapq.heappop(cluster.ends)
            cluster.end(piece, kind, now_s)
        cluster.serve(now_s)
    return [
        progress.done_s - study.arrival_s for progress, study in zip(cluster.progress, studies, strict=True)
    ]
