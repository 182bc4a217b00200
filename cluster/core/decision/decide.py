"""One tick of the coordinator as a pure function: who starts, who stops, and why everybody else waits."""

from cluster.core.decision.ordering import QueueOrder, is_overdue, queue_order
from cluster.core.decision.outcome import (
    Decision,
    Preemption,
    Resize,
    Start,
    explain_waits,
    stands_in_line,
)
from cluster.core.decision.predictions import Prediction, predict_starts
from cluster.core.decision.promises import is_promised
from cluster.core.decision.reasons import Obstacle, Reason, devices_text
from cluster.core.decision.round import Round, idle_pool, never_fits, place_in_topology
from cluster.core.decision.shadows import Shadow, cast_shadow
from cluster.core.decision.sharing import halves, join, restore
from cluster.core.decision.state import ClusterState, JobView, Slice, levelled
from cluster.core.decision.victims import VictimSearch
from cluster.core.errors import CapacityError
from cluster.core.placement.devices import DevicePool
from cluster.core.policies.interface import Blocking, Policy
from cluster.core.requests import MILLI, total_devices, total_milli

CONSERVATIVE_DEPTH = 16
# Obstacles that half a device can be free of.
SHARED_AWAY = (Reason.NO_DEVICES, Reason.FRAGMENTED, Reason.BORROW_LIMIT, Reason.LENT_OUT)


class _Deciding:
    """The walk over the queue."""

    def __init__(self, state: ClusterState, policy: Policy, now: float) -> None:
        self.state, self.policy, self.now = state, policy, now
        self.round = Round(state, now)
        self.devices = self.round.devices
        self.idle: DevicePool | None = None
        self.starts: list[Start] = []
        self.started: dict[str, JobView] = {}
        self.preemptions: list[Preemption] = []
        self.resized: dict[str, Resize] = {}
        self.obstacles: dict[str, Obstacle] = {}
        self.shadows: list[Shadow] = []
        self.blocked: dict[str, str] = {}  # kind -> job it waits for
        self.failed: dict[tuple[object, ...], Obstacle] = {}
        self.impossible: dict[tuple[object, ...], Obstacle | None] = {}
        self.vacated: dict[tuple[str, int], list[str]] = {}  # device -> victims that still have to leave it
        self.attempts = state.settings.preemption_attempts
        self.hopeless: set[tuple[object, ...]] = set()
        self.queue = QueueOrder([])
        self.waiting_promise = ""  # the first promised job that has to wait; those after it do, too

    def run(self) -> list[JobView]:
        """Consider everybody; return the waiting jobs in order."""
        waiting = [job for job in self.state.jobs if not job.running and not job.stopping]
        self._displace()
        self.resized = {entry.job_id: entry for entry in restore(self.round)}
        sees_running = self.policy.preempts or self.policy.shares
        everybody = waiting + list(self.round.running.values()) if sees_running else waiting
        self.queue = queue_order(self.state, everybody, self.policy, self.now)
        self.round.preferred = self.queue.kinds
        self.ranks = {job.id: rank for rank, job in enumerate(self.queue.jobs)}
        self._look_for_victims()
        order = [job for job in self.queue.jobs if job.id not in self.round.running]
        for job in order:
            if job.id in self.round.kept:
                self._use_kept(job)
        for job in order:
            if job.id not in self.obstacles and job.id not in self.started:
                self._consider(job)
        return order

    def _look_for_victims(self) -> None:
        self.search = VictimSearch(
            self.round, self.ranks, by_rank=self.policy.preempts, promises=self.policy.promises
        )

    def _displace(self) -> None:
        for name, cause in self.round.displaced.items():
            self.preemptions.append(Preemption(name, cause))
        for name in self.round.displaced:
            # Its devices are not free before it has saved its state; it only stops to count as running.
            del self.round.running[name]

    def _use_kept(self, job: JobView) -> None:
        """Start on devices that were kept, or go on keeping what of them is free."""
        pool = self.round.pool
        usable = all(pool.can_use(piece) for piece in job.placement)
        if not usable or job.held:
            return
        try:
            trial = pool.copy()
            trial.occupy(job.placement)
        except CapacityError:
            self._keep_free_part(job)
            message = "devices are being freed for it"
            self.obstacles[job.id] = Obstacle(Reason.PREEMPTING, message)
            return
        pool.occupy(job.placement)
        self._start(job, list(job.placement))

    def _keep_free_part(self, job: JobView) -> None:
        for piece in job.placement:
            try:
                self.round.pool.occupy([piece])
            except CapacityError:
                continue

    def _consider(self, job: JobView) -> None:
        aside = self._set_aside(job)
        if aside is not None:
            self.obstacles[job.id] = aside
            return
        promised = self.policy.promises and is_promised(job, self.now)
        obstacle = self._behind_promise() if promised else None
        if obstacle is None:
            obstacle = self._try_start(job, promised=promised)
        if obstacle is None or self._shares(job, obstacle):
            return
        self.obstacles[job.id] = obstacle
        if obstacle.rank() >= RESERVED_RANK and obstacle.reason is not Reason.PIN_BUSY:
            if promised:
                self.waiting_promise = self.waiting_promise or job.id
            else:
                self._block(job)

    def _behind_promise(self) -> Obstacle | None:
        """Promised jobs start in the order of their deadlines, which is the plan they were promised by."""
        if not self.waiting_promise:
            return None
        message = f"job {self.waiting_promise} goes first"
        return Obstacle(Reason.BEHIND, message, behind=self.waiting_promise)

    def _shares(self, job: JobView, obstacle: Obstacle) -> bool:
        """Let a job that found no devices join a running one, where the policy does that."""
        if not self.policy.shares or not job.keeps or self.shadows or obstacle.reason not in SHARED_AWAY:
            return False
        host = join(self.round, job, self.queue.remaining_s[job.id], self.queue.remaining_s)
        if host is None:
            return False
        slices = halves(host)
        self.round.pool.occupy(slices)
        self.resized[host.id] = Resize(host.id, slices[0].milli)
        self._start(job, slices)
        self._look_for_victims()
        return True

    def _set_aside(self, job: JobView) -> Obstacle | None:
        """Return why a job is not looked at further."""
        if job.held:
            return Obstacle(Reason.HELD, "the job is held")
        if self.state.queue_held:
            return Obstacle(Reason.QUEUE_HELD, f"the queue is held: {self.state.queue_held}")
        if job.id in self.queue.declined:
            return Obstacle(Reason.BEHIND, "other jobs gain more from a device than this one from a further")
        return None

    def _never(self, job: JobView) -> Obstacle | None:
        """Return why a job that found no place would not find one on the idle cluster either."""
        shape = (job.tasks, job.kinds, job.pin, job.topology)
        if shape not in self.impossible:
            self.impossible[shape] = None if self._fits_by_count(job) else self._never_on_idle(job)
        return self.impossible[shape]

    def _fits_by_count(self, job: JobView) -> bool:
        """Whether the count alone shows that a job of whole devices fits the idle cluster."""
        if job.pin or job.topology is not None or len(job.tasks) != 1:
            return False
        task = job.tasks[0]
        whole = task.milli == MILLI and not task.memory_bytes and (task.may_split or task.devices == 1)
        kinds = job.kinds or tuple(self.devices)
        most = max((self.devices[kind]["total"] for kind in kinds if kind in self.devices), default=0)
        return whole and task.total_milli() <= most

    def _never_on_idle(self, job: JobView) -> Obstacle | None:
        if self.idle is None:
            self.idle = idle_pool(self.state)
        return never_fits(self.idle, job)

    def _try_start(self, job: JobView, *, promised: bool = False) -> Obstacle | None:
        if not total_devices(job.tasks):
            self._start(job, [])
            return None
        key = (
            job.team,
            job.job_class,
            job.tasks,
            self.round.kinds_of(job),
            job.pin,
            job.topology,
            job.reservation,
            promised,
            self._bound(job),
        )
        if key in self.failed:
            return self.failed[key]
        obstacles = []
        for kind, allowed in self.round.options(job):
            obstacle = self._try_kind(job, kind, allowed)
            if obstacle is None:
                return None
            obstacles.append(obstacle)
        worst = self._never(job)
        if worst is None:
            if self._preempt(job, key, promised=promised):
                return None
            worst = min(obstacles, key=lambda entry: entry.rank())
        self.failed[key] = worst
        return worst

    def _bound(self, job: JobView) -> tuple[bool, ...] | float | None:
        """Return what of a job's limit matters here: which reservations it ends before."""
        if self.state.reservations:
            return job.limit_s
        return tuple(self._ends_s(job) <= shadow.start_s for shadow in self.shadows)

    def _ends_s(self, job: JobView) -> float:
        return float("inf") if job.limit_s is None else self.now + job.limit_s

    def _try_kind(self, job: JobView, kind: str, allowed: int) -> Obstacle | None:
        needed = total_milli(job.tasks)
        if kind in self.blocked:
            return Obstacle(Reason.BEHIND, f"job {self.blocked[kind]} goes first", behind=self.blocked[kind])
        obstacle = self._against_quota(job, kind, needed) or self._against_reservations(
            job, kind, allowed, needed
        )
        if obstacle is not None:
            return obstacle
        slices = place_in_topology(self.round.pool, job, allowed)
        if slices is None:
            return self._no_room(job, allowed, needed)
        blocker = self._in_the_way(job, kind, slices)
        if blocker is not None:
            self.round.pool.release(slices)
            slices = self._beside(job, kind, allowed, blocker)
            if slices is None:
                message = f"would delay job {blocker.job_id}, which has waited longer"
                return Obstacle(Reason.BEHIND, message, behind=blocker.job_id)
        self._start(job, slices)
        return None

    def _against_quota(self, job: JobView, kind: str, needed: int) -> Obstacle | None:
        book = self.round.book
        ceiling = book.ceiling(job.team, kind)
        answer = book.ask(job.team, kind, needed)
        if answer.passes:
            return None
        if (
            answer.rule == "lent_out"
            and self.round.pool.free_milli(self.round.pool.masks[kind]) <= answer.room
        ):
            return None  # not the quota but the devices are missing: the placement will say so
        numbers = {
            "needed_milli": needed,
            "room_milli": answer.room,
            "used_milli": book.in_use(job.team, kind),
            "guaranteed_milli": book.guaranteed(job.team, kind),
        }
        team = job.team or "the team"
        if needed > ceiling:
            message = f"needs {devices_text(needed)}, {team} may never hold more than {devices_text(ceiling)}"
            return Obstacle(Reason.QUOTA_CEILING, message, numbers)
        if answer.rule == "borrow_limit":
            message = f"{team} holds {devices_text(numbers['used_milli'])} and may borrow no more"
            return Obstacle(Reason.BORROW_LIMIT, message, numbers)
        message = f"{team} may take {devices_text(answer.room)} more now, the rest is other teams'"
        return Obstacle(Reason.LENT_OUT, message, numbers)

    def _against_reservations(self, job: JobView, kind: str, allowed: int, needed: int) -> Obstacle | None:
        kept, entry = self.round.held_back(job, kind)
        if entry is None or self.round.pool.free_milli(self.round.pool.masks[kind]) - kept >= needed:
            return None
        message = f"{devices_text(kept)} are reserved for {entry.name}"
        return Obstacle(Reason.RESERVED, message, {"needed_milli": needed, "reserved_milli": kept})

    def _no_room(self, job: JobView, allowed: int, needed: int) -> Obstacle:
        free = self.round.pool.free_milli(allowed)
        numbers = {"needed_milli": needed, "free_milli": free}
        if job.pin:
            return Obstacle(Reason.PIN_BUSY, f"node {job.pin} has {devices_text(free)} free", numbers)
        if free < needed:
            message = f"needs {devices_text(needed)}, {devices_text(free)} free"
            return Obstacle(Reason.NO_DEVICES, message, numbers)
        if job.topology is not None and job.topology[0] == "required":
            message = (
                f"{devices_text(free)} free, but not {devices_text(needed)} inside one {job.topology[1]}"
            )
            return Obstacle(Reason.TOPOLOGY, message, numbers)
        message = f"{devices_text(free)} free, but not {devices_text(needed)} where one gang can have them"
        return Obstacle(Reason.FRAGMENTED, message, numbers)

    def _in_the_way(self, job: JobView, kind: str, slices: list[Slice]) -> Shadow | None:
        """Return the first reservation that a start would delay, or count the start against all of them."""
        ends_s = self._ends_s(job)
        passed: list[Shadow] = []
        for shadow in self.shadows:
            if shadow.kind != kind:
                continue
            if not shadow.lets_pass(ends_s, slices):
                for earlier in passed:
                    earlier.undo(ends_s, slices)
                return shadow
            passed.append(shadow)
        return None

    def _beside(self, job: JobView, kind: str, allowed: int, blocker: Shadow) -> list[Slice] | None:
        """Place on nodes that have room beside the reservation as well."""
        apart = allowed & blocker.pool.whole.at_least(max(task.devices for task in job.tasks))
        slices = place_in_topology(self.round.pool, job, apart) if apart else None
        if slices is None:
            return None
        if self._in_the_way(job, kind, slices) is not None:
            self.round.pool.release(slices)
            return None
        return slices

    def _start(self, job: JobView, slices: list[Slice], after: tuple[str, ...] = ()) -> None:
        self.round.begin(job, slices)
        if self.vacated:
            # What a victim leaves beyond what it was stopped for is free only when it has left, too.
            leaving = {name for piece in slices for name in self.vacated.get((piece.node, piece.device), ())}
            after = (*after, *sorted(leaving - set(after)))
        self.starts.append(Start(job.id, tuple(slices), after))
        self.started[job.id] = job

    def _preempt(self, job: JobView, key: tuple[object, ...], *, promised: bool) -> bool:
        if (self.attempts <= 0 and not promised) or key in self.hopeless:
            return False
        self.attempts -= not promised
        found = self.search.find(job)
        if found is None or not found.victims:
            self.hopeless.add(key)
            return False
        for victim, cause in found.victims:
            self.round.evict(victim)
            for piece in victim.placement:
                self.vacated.setdefault((piece.node, piece.device), []).append(victim.id)
            self.preemptions.append(Preemption(victim.id, cause, job.id))
        self.round.pool.occupy(found.slices)
        self._start(job, list(found.slices), tuple(victim.id for victim, _ in found.victims))
        self.failed.clear()
        return True

    def _block(self, job: JobView) -> None:
        """Keep those behind from delaying a job that found no devices, as the policy says."""
        overdue = is_overdue(self.state, job, self.now)
        blocking = self.policy.blocking
        if blocking is Blocking.SKIP and not overdue:
            return
        kinds = {kind for kind, _ in self.round.options(job)}
        if blocking is Blocking.STOP:
            self._stop_behind(job, kinds)
            return
        depth = CONSERVATIVE_DEPTH if blocking is Blocking.CONSERVATIVE else 1
        if sum(shadow.kind in kinds for shadow in self.shadows) >= depth:
            return
        shadow = cast_shadow(self.round, job, self.shadows)
        if shadow is not None:
            self.shadows.append(shadow)
            self.failed.clear()
        elif overdue:
            self._stop_behind(job, kinds)

    def _stop_behind(self, job: JobView, kinds: set[str]) -> None:
        for kind in kinds:
            self.blocked.setdefault(kind, job.id)


RESERVED_RANK = Obstacle(Reason.RESERVED, "").rank()


def decide(state: ClusterState, policy: Policy, now: float, *, predict: bool = True) -> Decision:
    """Decide one tick.

    The same state, policy and time give the same decision. Gangs start whole or not at all; no device is
    given twice; every waiting job has a reason. With `predict` false the start times are left out, which is
    faster.
    """
    deciding = _Deciding(levelled(state) if policy.sizes else state, policy, now)
    order = deciding.run()
    predictions: dict[str, Prediction] = {}
    counted = [job for job in order if stands_in_line(deciding.obstacles.get(job.id))]
    if predict:
        predictions = predict_starts(deciding.round, counted, list(deciding.started.values()))
    return Decision(
        policy=policy.name,
        now_s=now,
        order=tuple(job.id for job in order),
        starts=tuple(deciding.starts),
        preemptions=tuple(deciding.preemptions),
        waits=explain_waits(order, counted, deciding.obstacles, predictions),
        devices=deciding.devices,
        resized=tuple(deciding.resized.values()),
    )
