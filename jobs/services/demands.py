"""What jobs ask of the queue, and whether that can ever be had."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster.core.decision import ClusterState, JobView
from cluster.core.decision.admission import deadline_answer, refusal
from cluster.core.decision.reasons import Obstacle, Reason
from cluster.core.errors import RequestError
from cluster.core.queue import Demand, Entry, QueueClock, demand_to_json, units_of
from cluster.core.states import ClusterName, DeviceState, EntryState
from cluster.models import Coordinator, Device, QueueEntry, Team, User
from cluster.services.live_state import (
    LiveState,
    clock_of,
    moment,
    read_fleet,
    read_live,
    read_quotas,
    rules_of,
)
from cluster.services.queue import cluster_of, coordinator_of, enter_queue
from cluster.services.reservations import present_bookings
from jobs.core.errors import InvalidSpec
from jobs.core.scheduling import Scheduling, gang_demand, read_scheduling, split_spec
from jobs.core.states import JobKind
from jobs.models import Job
from jobs.services.kinds import Demanding, KindHandler, handler_of, own_fields

CORES = "cpu"


def read_spec(kind: str, spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (scheduling fields as given, the kind's checked spec); raise InvalidSpec for every fault."""
    handler = handler_of(kind)
    declared, rest = split_spec(spec, own_fields(handler))
    faults: list[tuple[str, str]] = []
    checked: dict[str, Any] = {}
    for read in (lambda: read_scheduling(declared), lambda: checked.update(handler.check(rest))):
        try:
            read()
        except InvalidSpec as error:
            faults += [fault for fault in error.faults if fault[0] not in {pointer for pointer, _ in faults}]
    if faults:
        raise InvalidSpec(faults)
    return declared, checked


def demand_of(kind: str, spec: Mapping[str, Any], fields: Scheduling, now_s: float) -> Demand:
    """Return what a job with this checked spec asks of the queue."""
    handler: KindHandler = handler_of(kind)
    try:
        if isinstance(handler, Demanding):
            return handler.demand(spec, fields, now_s)
        if kind == JobKind.OVERLAP:
            return gang_demand(fields, now_s, devices=0)
        return _gang_of_processes(spec, fields, now_s)
    except RequestError as error:
        raise InvalidSpec([(f"/spec/{error.field}", str(error).partition(": ")[2])]) from error


def _gang_of_processes(spec: Mapping[str, Any], fields: Scheduling, now_s: float) -> Demand:
    """Return the gang for a job of so many processes; where there are only cores, processes share them."""
    wanted = spec.get("devices")
    replicas = spec.get("layout", {}).get("replicas", ())
    lends = bool(spec.get("lend_bubbles")) and any(len(row["stages"]) > 1 for row in replicas)
    demand = gang_demand(fields, now_s, devices=wanted if isinstance(wanted, int) else 1, lends=lends)
    real = Device.objects.filter(node__is_simulated=False).exclude(state=DeviceState.LOST)
    kinds = dict.fromkeys(real.values_list("kind", flat=True))
    cores = real.filter(kind=CORES).count()
    if set(kinds) == {CORES} and fields.tasks is None and demand.devices > cores:
        return replace(demand, tasks=gang_demand(replace(fields, devices=None), now_s, devices=cores).tasks)
    return demand


def refuse_impossible(demand: Demand, team: Team, owner: User, *, is_simulated: bool) -> None:
    """Raise InvalidSpec where a job could never run here, or its deadline cannot be promised.

    A cluster whose devices nobody has seen yet refuses nothing.
    """
    name = cluster_of(is_simulated=is_simulated)
    coordinator = coordinator_of(name)
    nodes = read_fleet(name).nodes
    if is_simulated and not nodes:
        raise InvalidSpec([("/kind", "there is no rehearsal cluster: an administrator has to load one")])
    if not nodes:
        return
    clock, now = clock_of(coordinator), timezone.now()
    if demand.reservation and not present_bookings(name).filter(team=team, name=demand.reservation).exists():
        rule = f"{team.slug} has no reservation {demand.reservation!r}, or it is over"
        raise InvalidSpec([("/spec/reservation", rule)])
    view = _view(demand, team, owner, clock, clock.queue_s(now.timestamp()))
    obstacle = refusal(ClusterState(nodes, (), read_quotas(), settings=rules_of(coordinator)), view)
    if obstacle is not None:
        raise InvalidSpec([(_pointer(obstacle, demand), obstacle.message)])
    if demand.deadline_s is not None and coordinator.policy == "deadline":
        # One promise at a time, so that no two are given for the same devices.
        Coordinator.objects.select_for_update().get(pk=name)
        _promise(view, read_live(coordinator, now))


def _view(demand: Demand, team: Team, owner: User, clock: QueueClock, now_s: float) -> JobView:
    deadline = None if demand.deadline_s is None else clock.queue_s(demand.deadline_s)
    entry = Entry(
        job_id="new",
        team=team.slug,
        owner=owner.get_username(),
        demand=replace(demand, deadline_s=deadline),
        state=EntryState.WAITING,
        submitted_s=now_s,
    )
    return units_of([entry], now_s).views[0]


def _promise(view: JobView, live: LiveState) -> None:
    answer = deadline_answer(live.state, view, live.now_s)
    if answer.accepted:
        return
    message = answer.message
    if answer.earliest_s is not None:
        earliest = moment(live.clock.wall_s(answer.earliest_s))
        message += f"; the earliest that can be promised now is {earliest.isoformat(timespec='seconds')}"
    raise InvalidSpec([("/spec/deadline", message)])


def _pointer(obstacle: Obstacle, demand: Demand) -> str:
    if obstacle.reason is Reason.UNSATISFIABLE and not obstacle.numbers:
        return "/spec/pin" if demand.pin and "node" in obstacle.message else "/spec/kind"
    shape = demand.tasks[0]
    if shape.memory_bytes:
        return "/spec/memory_bytes"
    return "/spec/tasks" if shape.count > 1 and not demand.elastic else "/spec/devices"


@transaction.atomic
def queue_job(job: Job, declared: Mapping[str, Any], *, strict: bool) -> QueueEntry:
    """Put a job into the queue with what it asks for; with `strict`, refuse what can never run."""
    fields = read_scheduling(declared)
    now_s = timezone.now().timestamp()
    is_simulated = job.kind == JobKind.REHEARSAL
    demand = demand_of(job.kind, job.spec, fields, now_s)
    if is_simulated and isinstance(fields.deadline, float):
        clock = clock_of(coordinator_of(ClusterName.REHEARSAL))
        demand = replace(demand, deadline_s=clock.wall_s(clock.queue_s(now_s) + fields.deadline))
    if strict:
        refuse_impossible(demand, job.team, job.owner, is_simulated=is_simulated)
    return enter_queue(
        job_id=job.pk,
        job_kind=job.kind,
        label=job.name,
        team=job.team,
        owner=job.owner,
        demand=demand,
        declared=dict(declared),
        is_simulated=is_simulated,
    )


@transaction.atomic
def ask_again() -> None:
    """Work out anew what a job asks for that could never run: devices may have come since."""
    stuck = QueueEntry.objects.select_for_update(skip_locked=True).filter(
        state=EntryState.WAITING, is_simulated=False, reason=Reason.UNSATISFIABLE
    )
    jobs = Job.objects.in_bulk([entry.pk for entry in stuck])
    for entry in stuck:
        job = jobs[entry.pk]
        fields = read_scheduling(entry.declared)
        demand = demand_to_json(demand_of(job.kind, job.spec, fields, entry.submitted_at.timestamp()))
        demand["lends"] = entry.demand.get("lends", demand["lends"])  # an operator may have switched it off
        if demand != entry.demand:
            entry.demand = demand
            entry.save(update_fields=["demand"])


def kept_on_rerun(origin: UUID, kind: str) -> dict[str, Any]:
    """Return the scheduling fields of an earlier job that hold for one like it: all but a time that is past,
    and those that the kind's own form shows.
    """
    job = Job.objects.filter(pk=origin, kind=kind).first()
    if job is None:
        return {}
    own = own_fields(handler_of(kind))
    if "devices" in own:
        own |= {"tasks", "devices_per_task"}
    kept = {name: value for name, value in declared_of(job).items() if name not in own}
    deadline = read_scheduling(kept).deadline
    if isinstance(deadline, datetime) and deadline <= timezone.now():
        del kept["deadline"]
    return kept


def declared_of(job: Job) -> dict[str, Any]:
    """Return the scheduling fields with which a job was submitted."""
    row = QueueEntry.objects.filter(pk=job.pk).values_list("declared", flat=True).first()
    return dict(row or {})
