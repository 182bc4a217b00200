"""Who gives way: only borrowed capacity or a lower class, as few as possible, none too early or too often."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from cluster.core.decision.promises import is_promised
from cluster.core.decision.round import Round, place_in_topology
from cluster.core.decision.state import JobView, Slice
from cluster.core.requests import MILLI, total_milli

Victim = tuple[JobView, str]  # who, and the cause that allows it

MOST_VICTIMS = 256
MOST_SINGLE_TRIALS = 4


@dataclass(frozen=True, slots=True)
class Sacrifice:
    """Victims with the cause each was allowed for, and where the job then goes."""

    victims: tuple[Victim, ...]
    slices: tuple[Slice, ...]


class VictimSearch:
    """Finds victims on one round; what all searches share is looked up once.

    Args:
        ranks: place of every job in the queue's order, running ones too where `by_rank`.
        by_rank: the policy itself stops a running job for one that is ahead of it.
        promises: everybody gives way to jobs with a promised deadline.
    """

    def __init__(
        self, round_: Round, ranks: Mapping[str, int], *, by_rank: bool, promises: bool = False
    ) -> None:
        self.round, self.ranks, self.by_rank, self.promises = round_, ranks, by_rank, promises
        self.by_team: dict[tuple[str, str], list[JobView]] = {}
        self.milli_on: dict[str, dict[int, int]] = {}  # job -> node -> thousandths
        self.rooms: dict[int, int] = {}  # node -> thousandths free there without its candidates
        for job in round_.running.values():
            kind = round_.kind_of.get(job.id)
            if kind is not None and job.preemptible:
                self.by_team.setdefault((kind, job.team), []).append(job)
        self.ripe: dict[str, list[JobView]] = {}  # kind -> who may be stopped, first to go first
        for (kind, _), jobs in self.by_team.items():
            self.ripe.setdefault(kind, []).extend(job for job in jobs if self._is_ripe(job))
        for jobs in self.ripe.values():
            jobs.sort(key=_first_to_go)

    def find(self, job: JobView) -> Sacrifice | None:
        """Return the fewest running jobs whose devices let a job start, or None."""
        needed = total_milli(job.tasks)
        for kind, allowed in self.round.options(job):
            candidates = self._candidates(job, kind, allowed)
            freed = sum(self.round.milli_of[victim.id] for victim, _ in candidates)
            if not candidates or freed + self.round.pool.free_milli(allowed) < needed:
                continue
            if not self._quota_passes(job, kind, candidates):
                continue  # nor would it pass with fewer of them gone
            found = self._fewest(job, kind, allowed, candidates)
            if found is not None:
                return found
        return None

    def _candidates(self, job: JobView, kind: str, allowed: int) -> list[Victim]:
        """Return who may be stopped for a job, first to go first.

        Borrowing teams first, then the lowest class, then the latest start, so that the least work is lost. A
        team stops being a candidate as soon as it is back at its guarantee.
        """
        if self.promises and is_promised(job, self.round.now):
            return self._for_promise(kind, allowed)
        book = self.round.book
        answer = book.ask(job.team, kind, total_milli(job.tasks))
        own_right = bool(book.teams) and answer.passes and answer.borrowed == 0
        reach = None if allowed == self.round.pool.masks[kind] else allowed
        teams = {team for of_kind, team in self.by_team if of_kind == kind}
        over = {team: book.borrowing(team, kind) for team in teams}
        borrowing = {team for team, milli in over.items() if milli > 0}
        lent: dict[str, Victim] = {}
        for entry in self._lent(job, kind):
            if self._may_go(entry[0], reach) and entry[0].id not in lent:
                lent[entry[0].id] = entry
                over[entry[0].team] -= self.round.milli_of[entry[0].id]
        found = self._by_cause(job, kind, reach, own_right=own_right)
        return [*lent.values(), *self._while_borrowing(job, found, borrowing, over, lent)]

    def _may_go(self, victim: JobView, reach: int | None) -> bool:
        """Whether a job still runs, on some node of a set where that matters."""
        return victim.id in self.round.running and (reach is None or self._reach(victim, reach))

    def _by_cause(self, job: JobView, kind: str, reach: int | None, *, own_right: bool) -> Iterator[Victim]:
        """Yield the ripe jobs that a job may stop, the lowest classes first."""
        ranks, running = self.ranks, self.round.running
        rank, job_class, own_team = ranks.get(job.id, 0), job.job_class, job.team
        for victim in self.ripe.get(kind, ()):
            if victim.job_class > job_class and not own_right:
                return  # nor any after it
            if own_right and victim.team != own_team:
                cause = "guarantee"
            elif victim.job_class != job_class:
                cause = "class" if victim.job_class < job_class else ""
            else:
                cause = "policy" if self.by_rank and rank < ranks.get(victim.id, 0) else ""
            if cause and victim.id in running and (reach is None or self._reach(victim, reach)):
                yield victim, cause

    def _for_promise(self, kind: str, allowed: int) -> list[Victim]:
        """Return who gives way to a promised job: all who were promised nothing, however short they ran."""
        now, running = self.round.now, self.round.running
        victims = [
            victim
            for (of_kind, _), jobs in self.by_team.items()
            for victim in jobs
            if of_kind == kind and victim.id in running and not is_promised(victim, now)
        ]
        victims = [victim for victim in sorted(victims, key=_first_to_go) if self._reach(victim, allowed)]
        return [(victim, "deadline") for victim in victims]

    def _is_ripe(self, victim: JobView) -> bool:
        """Whether a running job has had its minimum run time and has not been stopped too often."""
        settings = self.round.state.settings
        safe_s = settings.min_runtime_s if victim.min_runtime_s is None else victim.min_runtime_s
        ran_s = self.round.now - victim.started_s if victim.started_s is not None else 0.0
        return ran_s >= safe_s and victim.evictions < settings.most_evictions

    def _lent(self, job: JobView, kind: str) -> list[Victim]:
        """Return who uses devices lent by the job's active reservation; no minimum run time protects them."""
        now = self.round.now
        if not job.reservation or not any(
            entry.name == job.reservation and entry.kind == kind and entry.start_s <= now < entry.end_s
            for entry in self.round.state.reservations
        ):
            return []
        return [
            (victim, "reservation")
            for (of_kind, _), jobs in self.by_team.items()
            for victim in jobs
            if of_kind == kind and victim.reservation != job.reservation
        ]

    def _nodes_of(self, victim: JobView) -> dict[int, int]:
        """Return the thousandths a running job holds on each node."""
        held = self.milli_on.get(victim.id)
        if held is None:
            held = self.milli_on[victim.id] = {}
            for piece in victim.placement:
                node = self.round.pool.number[piece.node]
                held[node] = held.get(node, 0) + piece.milli
        return held

    def _reach(self, victim: JobView, allowed: int) -> bool:
        return any(allowed >> node & 1 for node in self._nodes_of(victim))

    def _while_borrowing(
        self,
        job: JobView,
        candidates: Iterable[Victim],
        borrowing: Set[str],
        over: dict[str, int],
        lent: Mapping[str, Victim],
    ) -> list[Victim]:
        """Return those of teams that still borrow when their turn comes, then the own team's."""
        own_team, milli_of = job.team, self.round.milli_of
        lenders: list[Victim] = []
        others: list[Victim] = []
        for entry in candidates:
            victim = entry[0]
            team = victim.team
            if team not in borrowing:
                if team == own_team and victim.id not in lent:
                    others.append(entry)
            elif (team == own_team or over[team] > 0) and victim.id not in lent:
                over[team] -= milli_of[victim.id]
                lenders.append(entry)
        return lenders + others

    def _fewest(
        self, job: JobView, kind: str, allowed: int, candidates: Sequence[Victim]
    ) -> Sacrifice | None:
        """Return the best of a few ways: victims node by node, cheapest nodes first, or simply in order."""
        needed = total_milli(job.tasks)
        whole = all(task.milli == MILLI and not task.memory_bytes for task in job.tasks)
        if not whole or job.topology is not None:
            return self._shortest(job, kind, allowed, candidates)
        nodes = self._nodes_by_price(allowed, candidates)
        single = self._single(job, kind, allowed, nodes)
        if single is not None:
            return single
        fitting = [(node, here) for node, here in nodes if self.rooms[node] >= needed]
        if fitting:
            prices = sorted((self._price(entry, needed), entry[0]) for entry in fitting)
            chosen = {node for _, node in prices[:3]}
            found = [
                option
                for node, here in fitting
                if node in chosen and (option := self._shortest(job, kind, 1 << node, here)) is not None
            ]
            return min(
                found, key=lambda option: (len(option.victims), _lost(self.round, option)), default=None
            )
        if needed <= self.round.pool.whole.largest * MILLI and all(task.count == 1 for task in job.tasks):
            return None
        ordered = {victim.id: (victim, cause) for _, here in nodes for victim, cause in here}
        return self._shortest(job, kind, allowed, list(ordered.values()))

    def _single(
        self, job: JobView, kind: str, allowed: int, nodes: Sequence[tuple[int, list[Victim]]]
    ) -> Sacrifice | None:
        """Return the one victim that is enough alone and loses the least work, or None."""
        needed = total_milli(job.tasks)
        enough = [
            (_lost_by(self.round, [entry]), entry[0].id, entry)
            for node, here in nodes
            for free in [self.round.pool.whole.free[node] * MILLI]
            for entry in here
            if free + self.milli_on[entry[0].id][node] >= needed
        ]
        for _, _, entry in sorted(enough, key=lambda found: found[:2])[:MOST_SINGLE_TRIALS]:
            slices = self._trial(job, kind, allowed, [entry])
            if slices is not None:
                return Sacrifice((entry,), tuple(slices))
        return None

    def _nodes_by_price(self, allowed: int, candidates: Sequence[Victim]) -> list[tuple[int, list[Victim]]]:
        """Return (node, its candidates, largest first), fewest candidates per freed device first."""
        on_node: dict[int, list[Victim]] = {}
        free, rooms = self.round.pool.whole.free, self.rooms
        rooms.clear()
        everywhere = allowed in self.round.pool.masks.values()
        for entry in candidates:
            for node, milli in self._nodes_of(entry[0]).items():
                if not everywhere and not allowed >> node & 1:
                    continue
                if node in on_node:
                    on_node[node].append(entry)
                    rooms[node] += milli
                else:
                    on_node[node], rooms[node] = [entry], free[node] * MILLI + milli
        milli_of = self.round.milli_of
        for here in on_node.values():
            if len(here) > 1:
                here.sort(key=lambda entry: -milli_of[entry[0].id])
        return sorted(on_node.items(), key=lambda item: (len(item[1]) / max(1, rooms[item[0]]), item[0]))

    def _room(self, node: int, here: Sequence[Victim]) -> int:
        """Return what a node would have free without its candidates."""
        return self.round.pool.whole.free[node] * MILLI + sum(
            [self.milli_on[victim.id][node] for victim, _ in here]
        )

    def _price(self, entry: tuple[int, list[Victim]], needed: int) -> tuple[int, float]:
        """Return how many candidates of a node free enough, largest first, and the work they lose."""
        node, here = entry
        count = 1
        while self._room(node, here[:count]) < needed:
            count += 1
        return count, _lost_by(self.round, here[:count])

    def _shortest(
        self, job: JobView, kind: str, allowed: int, candidates: Sequence[Victim]
    ) -> Sacrifice | None:
        """Return the shortest run of candidates that suffices, without the needless ones."""
        candidates = candidates[:MOST_VICTIMS]
        low, high = 0, 1
        while self._trial(job, kind, allowed, candidates[:high]) is None:
            if high >= len(candidates):
                return None
            low, high = high, min(2 * high, len(candidates))
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (
                (low, middle) if self._trial(job, kind, allowed, candidates[:middle]) else (middle, high)
            )
        victims = list(candidates[:high])
        for entry in victims[-2::-1]:
            fewer = [other for other in victims if other is not entry]
            if self._trial(job, kind, allowed, fewer) is not None:
                victims = fewer
        slices = self._trial(job, kind, allowed, victims)
        return None if slices is None else Sacrifice(tuple(victims), tuple(slices))

    def _trial(self, job: JobView, kind: str, allowed: int, victims: Sequence[Victim]) -> list[Slice] | None:
        """Return where a job would go without some victims; quotas count too."""
        if not self._quota_passes(job, kind, victims):
            return None
        pool = self.round.pool.copy()
        for victim, _ in victims:
            pool.release(victim.placement)
        return place_in_topology(pool, job, allowed)

    def _quota_passes(self, job: JobView, kind: str, victims: Sequence[Victim]) -> bool:
        book, freed = self.round.book, dict[str, int]()
        for victim, _ in victims:
            freed[victim.team] = freed.get(victim.team, 0) + self.round.milli_of[victim.id]
        for team, milli in freed.items():
            book.charge(team, kind, -milli)
        passes = book.ask(job.team, kind, total_milli(job.tasks)).passes
        for team, milli in freed.items():
            book.charge(team, kind, milli)
        return passes


def _first_to_go(job: JobView) -> tuple[int, float, str]:
    """Return by what victims are sorted: the lowest class, then the latest start."""
    return job.job_class, -(job.started_s or 0.0), job.id


def _lost(round_: Round, option: Sacrifice) -> float:
    return _lost_by(round_, option.victims)


def _lost_by(round_: Round, victims: Sequence[Victim]) -> float:
    """Return the device-seconds that the present runs of some victims have done."""
    lost = 0.0
    for victim, _ in victims:
        if victim.started_s is not None:
            lost += round_.milli_of[victim.id] / MILLI * max(0.0, round_.now - victim.started_s)
    return lost
