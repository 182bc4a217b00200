"""From an exact plan over classes of devices to one over devices."""

from collections.abc import Sequence

from jobs.core.layout.exact import ExactSearch, Packed
from jobs.core.layout.instance import Device, Instance, Layout, Replica, Stage


def realise(search: ExactSearch, plan: Sequence[Packed], instance: Instance) -> Layout:
    """Choose devices for a plan: those that work today first, members of one group kept together."""
    today = _positions(instance)
    pools = {
        node.node: [sorted(members, key=lambda device: today[device.id]) for members in node.classes]
        for node in search.nodes
    }
    ranks = {device.id: index for index, device in enumerate(instance.devices)}
    replicas = []
    for packed in plan:
        waiting: dict[object, list[list[Device]]] = {}
        for node, cut in search.node_cuts(packed.usage, packed.pipeline.kinds):
            for usage in cut.groups:
                members = [
                    pools[node.node][index].pop(0) for index, count in enumerate(usage) for _ in range(count)
                ]
                waiting.setdefault(search.work.group_type(members), []).append(members)
        stages = []
        for kind, layers in zip(packed.pipeline.kinds, packed.pipeline.layers, strict=True):
            members = sorted(waiting[kind].pop(0), key=lambda device: ranks[device.id])
            stages.append(Stage(tuple(device.id for device in members), layers))
        replicas.append(Replica(packed.microbatches, tuple(stages)))
    return Layout(tuple(replicas))


def _positions(instance: Instance) -> dict[str, tuple[int, int, int, int]]:
    """Sort key of a device: working before idle, then by its replica and stage of today."""
    keys = {device.id: (1, 0, 0, index) for index, device in enumerate(instance.devices)}
    if instance.current is not None:
        for r, replica in enumerate(instance.current.replicas):
            for s, stage in enumerate(replica.stages):
                for name in stage.devices:
                    keys[name] = (0, r, s, keys[name][3])
    return keys
