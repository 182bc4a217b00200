"""The rehearsal cluster: simulated nodes on which rehearsal jobs pass through the very same queue."""

from django.db import transaction
from django.utils import timezone

from cluster.core.bodies import NodeBody, RehearsalBody
from cluster.core.errors import InvalidBody, RehearsalBusy
from cluster.core.states import ClusterName, EntryState
from cluster.models import Coordinator, Device, FairUsage, Node, QueueEntry, Team
from cluster.services.queue import coordinator_of, ring_coordinator
from cluster.services.quotas import set_policy, set_quota
from journal.services import audit


@transaction.atomic
def load_rehearsal(*, body: RehearsalBody, actor: str) -> list[str]:
    """Put up a rehearsal cluster in place of any earlier one; return warnings about its quotas.

    Raises:
        RehearsalBusy: rehearsal jobs wait or run.
        InvalidBody: a node has the name of a real one.
    """
    _take_down()
    names = [node.name for node in body.nodes]
    real = Node.objects.filter(name__in=names).values_list("name", flat=True).first()
    if real is not None:
        raise InvalidBody([("/nodes", f"{real} is the name of a real node")])
    _create_nodes(body.nodes)
    row = Coordinator.objects.select_for_update().get(pk=ClusterName.REHEARSAL)
    row.clock_speed, row.clock_from, row.digest = body.clock_speed, timezone.now(), ""
    row.save(update_fields=["clock_speed", "clock_from", "digest"])
    warnings: list[str] = []
    for slug, quota in body.teams.items():
        team, _ = Team.objects.get_or_create(slug=slug, defaults={"name": slug})
        _, warnings = set_quota(team_id=team.pk, body=quota, actor=actor)
    if body.policy is not None:
        set_policy(name=ClusterName.REHEARSAL, body=body.policy, actor=actor)
    devices = sum(node.devices for node in body.nodes)
    detail = {"nodes": len(names), "devices": devices, "clock_speed": body.clock_speed}
    audit(actor=actor, action="rehearsal.load", target="cluster:rehearsal", detail=detail)
    ring_coordinator()
    return warnings


@transaction.atomic
def remove_rehearsal(*, actor: str) -> None:
    """Take the rehearsal cluster away; what it did stays in the accounts, marked as simulated."""
    _take_down()
    audit(actor=actor, action="rehearsal.remove", target="cluster:rehearsal")


def _take_down() -> None:
    coordinator_of(ClusterName.REHEARSAL)
    Coordinator.objects.select_for_update().get(pk=ClusterName.REHEARSAL)
    active = QueueEntry.objects.filter(is_simulated=True).exclude(state=EntryState.ENDED).count()
    if active:
        jobs = "job waits or runs" if active == 1 else "jobs wait or run"
        raise RehearsalBusy(f"{active} rehearsal {jobs}: cancel them first")
    Node.objects.filter(is_simulated=True).delete()
    FairUsage.objects.filter(is_simulated=True).delete()


def _create_nodes(nodes: tuple[NodeBody, ...]) -> None:
    now = timezone.now()
    rows = Node.objects.bulk_create(
        Node(
            name=node.name,
            is_simulated=True,
            memory_bytes=node.memory_bytes * node.devices,
            facts={"domains": node.domains} if node.domains else {},
            seen_at=now,
        )
        for node in nodes
    )
    Device.objects.bulk_create(
        (
            Device(node=row, index=index, kind=node.kind, memory_bytes=node.memory_bytes, seen_at=now)
            for row, node in zip(rows, nodes, strict=True)
            for index in range(node.devices)
        ),
        batch_size=2000,
    )
