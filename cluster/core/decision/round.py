"""The working state of one decision: devices, quotas and what has been decided so far."""

from collections.abc import Mapping, Sequence, Set

from cluster.core.decision.reasons import Obstacle, Reason, devices_text
from cluster.core.decision.state import ClusterState, JobView, Reservation, Slice
from cluster.core.fairness.quota import QuotaBook
from cluster.core.placement.devices import DevicePool, NodeView
from cluster.core.placement.rules import PLACEMENTS
from cluster.core.requests import total_milli


class Round:
    """Devices and quotas as they stand while a decision is taken.

    Attributes:
        running: jobs that hold devices and have not been told to stop, by id.
        displaced: running jobs whose nodes drain or are gone, by id, with the cause.
        kept: waiting jobs for whom devices are kept while victims stop, by id.
        preferred: kinds that the policy wants a job to try, best first, where it has a say.
    """

    def __init__(self, state: ClusterState, now: float) -> None:
        self.state, self.now = state, now
        self.pool = DevicePool(state.nodes, PLACEMENTS[state.settings.placement], self._held_slices(state))
        self.running: dict[str, JobView] = {}
        self.displaced: dict[str, str] = {}
        self.kept: dict[str, JobView] = {}
        self.kind_of: dict[str, str] = {}
        self.milli_of: dict[str, int] = {}
        self.preferred: Mapping[str, tuple[str, ...]] = {}
        self._take_stock()
        self.devices = self.pool.totals()
        self.capacity = {kind: entry["used"] + entry["free"] for kind, entry in self.devices.items()}
        self.book = QuotaBook(state.teams, self.capacity)
        self._charge_all()

    @staticmethod
    def _held_slices(state: ClusterState) -> list[Slice]:
        names = {node.name for node in state.nodes}
        return [
            piece
            for job in state.jobs
            if job.running or job.stopping
            for piece in job.placement
            if piece.node in names
        ]

    def _take_stock(self) -> None:
        self._team_of: dict[str, str] = {}
        self.inside: dict[str, int] = {}  # reservation -> thousandths its own jobs hold
        nodes = {node.name: node for node in self.state.nodes}
        troubled = {name for name, node in nodes.items() if node.sends_away()}
        sound = nodes.keys() - troubled
        for job in self.state.jobs:
            if job.running or job.stopping:
                self._note_running(job, nodes, sound)
            elif job.placement:
                self.kept[job.id] = job

    def _note_running(self, job: JobView, nodes: dict[str, NodeView], sound: Set[str]) -> None:
        slices = job.placement
        is_sound = True
        for piece in slices:
            if piece.node not in sound:
                is_sound = False
                slices = tuple(entry for entry in slices if entry.node in nodes)
                break
        if slices:
            self._account(job, nodes[slices[0].node].kind, slices)
        if job.stopping:
            return
        self.running[job.id] = job
        if is_sound:
            return
        states = {
            nodes[piece.node].condition(piece.device) if piece.node in nodes else "lost"
            for piece in job.placement
        }
        if "lost" in states:
            self.displaced[job.id] = "node_lost"
        elif "draining" in states:
            self.displaced[job.id] = "drain"

    def _account(self, job: JobView, kind: str, slices: Sequence[Slice]) -> None:
        milli = sum([piece.milli for piece in slices])
        self.kind_of[job.id], self.milli_of[job.id], self._team_of[job.id] = kind, milli, job.team
        self.inside[job.reservation] = self.inside.get(job.reservation, 0) + milli

    def _charge_all(self) -> None:
        """Charge what everybody holds, team by team."""
        sums: dict[tuple[str, str], int] = {}
        for name, kind in self.kind_of.items():
            key = (self._team_of[name], kind)
            sums[key] = sums.get(key, 0) + self.milli_of[name]
        for (team, kind), milli in sums.items():
            self.book.charge(team, kind, milli)

    def begin(self, job: JobView, slices: Sequence[Slice], *, occupied: bool = True) -> None:
        """Note a start; the slices are taken already unless told otherwise."""
        if not occupied:
            self.pool.occupy(slices)
        if slices:
            self._account(job, self.pool.kind_of(slices), slices)
            self.book.charge(job.team, self.kind_of[job.id], self.milli_of[job.id])

    def evict(self, job: JobView) -> None:
        """Give a running job's devices back."""
        self.pool.release(piece for piece in job.placement if piece.node in self.pool.number)
        del self.running[job.id]
        kind = self.kind_of.pop(job.id, None)
        if kind is not None:
            milli = self.milli_of.pop(job.id)
            self.book.charge(job.team, kind, -milli)
            self.inside[job.reservation] -= milli

    def kinds_of(self, job: JobView) -> tuple[str, ...]:
        """Return the kinds a job should try, best first; empty for any."""
        return self.preferred.get(job.id, job.kinds)

    def options(self, job: JobView) -> list[tuple[str, int]]:
        """Return (kind, set of nodes) a job may use, in the order in which it prefers them."""
        pin = -1
        if job.pin:
            pin = 1 << self.pool.number[job.pin] if job.pin in self.pool.number else 0
        kinds = self.kinds_of(job) or tuple(self.pool.masks)
        return [(kind, self.pool.masks[kind] & pin) for kind in kinds if self.pool.masks.get(kind, 0) & pin]

    def held_back(self, job: JobView, kind: str) -> tuple[int, Reservation | None]:
        """Return the thousandths of a kind that reservations keep from a job, and the largest of them."""
        kept, largest = 0, None
        for entry in self.state.reservations:
            if entry.kind != kind or entry.name == job.reservation or not self._touches(job, entry):
                continue
            rest = max(0, entry.milli - self.inside.get(entry.name, 0))
            kept += rest
            if rest and (largest is None or rest > largest.milli):
                largest = entry
        return kept, largest

    def _touches(self, job: JobView, entry: Reservation) -> bool:
        if self.now >= entry.end_s or (entry.lendable and job.preemptible):
            return False
        return self.now >= entry.start_s or job.limit_s is None or self.now + job.limit_s > entry.start_s


def idle_pool(state: ClusterState) -> DevicePool:
    """Return the whole cluster as it would be idle and healthy."""
    nodes = [
        NodeView(n.name, n.devices, n.kind, domains=n.domains, memory_bytes=n.memory_bytes)
        for n in state.nodes
    ]
    return DevicePool([node for node in nodes if node.devices], PLACEMENTS[state.settings.placement])


def never_fits(idle: DevicePool, job: JobView) -> Obstacle | None:
    """Return why a job could not run on an idle cluster, or None where it could."""
    pool, needed = idle.copy(), total_milli(job.tasks)
    if needed and not pool.nodes:
        return Obstacle(Reason.UNSATISFIABLE, "no devices are known yet")
    if job.pin and job.pin not in pool.number:
        return Obstacle(Reason.UNSATISFIABLE, f"there is no node {job.pin} with devices")
    unknown = [kind for kind in job.kinds if kind not in pool.masks]
    if job.kinds and len(unknown) == len(job.kinds):
        return Obstacle(Reason.UNSATISFIABLE, f"the cluster has no {' or '.join(unknown)}")
    if not needed:
        return None
    best = 0
    for kind in job.kinds or tuple(pool.masks):
        mask = pool.masks.get(kind, 0)
        mask &= 1 << pool.number[job.pin] if job.pin in pool.number else (0 if job.pin else -1)
        best = max(best, pool.free_milli(mask) if mask else 0)
        if mask and place_in_topology(pool, job, mask) is not None:
            return None
    if needed > best:
        message = f"needs {devices_text(needed)}, capacity {devices_text(best)}"
    else:
        message = f"needs {devices_text(needed)} in a shape that no node of the cluster has"
    return Obstacle(Reason.UNSATISFIABLE, message, {"needed_milli": needed, "capacity_milli": best})


def place_in_topology(pool: DevicePool, job: JobView, allowed: int) -> list[Slice] | None:
    """Take devices for a gang, inside one domain of its topology level where it asks for that.

    Required: the domain with the least free devices that still fits, or nothing. Preferred: that, or
        anywhere.
    (Kueue's topology-aware scheduling names the same three modes.)
    """
    if job.topology is None:
        return pool.place(job.tasks, allowed)
    mode, level = job.topology
    domains: dict[str, int] = {}
    for number, node in enumerate(pool.nodes):
        if level in node.domains and allowed >> number & 1:
            domains[node.domains[level]] = domains.get(node.domains[level], 0) | 1 << number
    by_room = sorted(domains.items(), key=lambda item: (pool.free_milli(item[1]), item[0]))
    for _, members in by_room:
        slices = pool.place(job.tasks, members)
        if slices is not None:
            return slices
    return pool.place(job.tasks, allowed) if mode == "preferred" else None
