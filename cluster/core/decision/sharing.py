"""Two jobs on the same devices: who joins whom, and who has its devices alone again.

While two share, each holds half of every device, so that nothing is ever given twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster.core.decision.outcome import Resize
from cluster.core.decision.round import Round
from cluster.core.decision.state import JobView, Slice
from cluster.core.policies.lucid import Host, pick_host, sharing_priority
from cluster.core.requests import MILLI, total_devices

HALF = MILLI // 2


def asks_whole(job: JobView) -> bool:
    """Whether a job asks for whole devices."""
    return all(task.milli == MILLI and not task.memory_bytes for task in job.tasks)


def restore(round_: Round) -> list[Resize]:
    """Give those who shared a device all of it again where the other one has left."""
    found = []
    for job in list(round_.running.values()):
        if not job.placement or job.placement[0].milli == MILLI or not asks_whole(job):
            continue
        if all(round_.pool.left_on(piece) + piece.milli >= MILLI for piece in job.placement):
            _resize(round_, job, MILLI)
            found.append(Resize(job.id, MILLI))
    return found


def join(
    round_: Round, job: JobView, remaining_s: float, remaining_of: Mapping[str, float]
) -> JobView | None:
    """Put a job on the devices of a running one that does not suffer much; return that one, or None.

    The devices are halved in the round, and the quota of the job is asked for its half.
    """
    devices = total_devices(job.tasks)
    hosts = _hosts(round_, job)
    candidates = [
        Host(row, devices, sharing_priority(remaining_of.get(host.id, 0.0), devices))
        for row, host in enumerate(hosts)
    ]
    found = pick_host(
        len(hosts),
        devices,
        sharing_priority(remaining_s, devices),
        candidates,
        lambda _, row: (job.keeps, hosts[row].keeps),
    )
    if found is None:
        return None
    host = hosts[found.row]
    kind = round_.kind_of[host.id]
    _resize(round_, host, HALF)
    if not round_.book.ask(job.team, kind, devices * HALF).passes:
        _resize(round_, round_.running[host.id], MILLI)
        return None
    return round_.running[host.id]


def halves(host: JobView) -> list[Slice]:
    """Return the half of a host's devices that a guest with the same shape takes."""
    return [replace(piece, milli=HALF) for piece in host.placement]


def _hosts(round_: Round, job: JobView) -> list[JobView]:
    allowed = dict(round_.options(job))
    return [
        host
        for host in round_.running.values()
        if host.keeps > 0
        and host.tasks == job.tasks
        and host.reservation == job.reservation
        and host.placement
        and all(piece.milli == MILLI and round_.pool.can_use(piece) for piece in host.placement)
        and _on_allowed(round_, host.placement, allowed.get(round_.kind_of.get(host.id, ""), 0))
    ]


def _on_allowed(round_: Round, slices: Sequence[Slice], allowed: int) -> bool:
    return all(allowed >> round_.pool.number[piece.node] & 1 for piece in slices)


def _resize(round_: Round, job: JobView, milli: int) -> None:
    slices = tuple(replace(piece, milli=milli) for piece in job.placement)
    round_.pool.release(job.placement)
    round_.pool.occupy(slices)
    change = sum(piece.milli for piece in slices) - round_.milli_of[job.id]
    round_.milli_of[job.id] += change
    round_.inside[job.reservation] += change
    round_.book.charge(job.team, round_.kind_of[job.id], change)
    round_.running[job.id] = replace(job, placement=slices)
