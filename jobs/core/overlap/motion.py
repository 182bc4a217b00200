"""Changes of an order that keep every dependence: collectives earlier, waits later, nodes merged."""

from jobs.core.overlap.graph import Graph, Kind, Steps


def launch_early_wait_late(graph: Graph, steps: Steps) -> Steps:
    """Issue each collective right after its last input and each wait right before its first user.

    Nothing crosses a host barrier. Work that does not depend on a collective, such as weight gradients,
    comes to lie between its launch and its wait.
    """
    users: list[list[int]] = [[] for _ in graph.nodes]
    for index, node in enumerate(graph.nodes):
        for source in node.inputs:
            users[source].append(index)
    keys: dict[int, tuple[float, ...]] = {}
    for position, step in enumerate(steps):
        for member in step:
            keys[member] = (position,)
    region_start, region_end = _region_limits(graph, keys)
    order = [index for step in steps for index in step]
    for index in order:
        node = graph.nodes[index]
        if node.kind is Kind.COMM:
            before = max((keys[source] for source in node.inputs), default=(-1,))
            floor = (region_start[graph.region[index]], -1)
            keys[index] = (*max(before, floor), keys[index][0]) if before < keys[index] else keys[index]
    for index in reversed(order):
        if graph.nodes[index].kind is Kind.WAIT:
            after = min((keys[user][0] for user in users[index]), default=len(steps))
            after = min(after, region_end[graph.region[index]] + 1)
            keys[index] = max(keys[index], (after - 0.5, keys[index][0]))
    return [(index,) for index in sorted(order, key=lambda i: keys[i])]


def _region_limits(
    graph: Graph, keys: dict[int, tuple[float, ...]]
) -> tuple[dict[int, float], dict[int, float]]:
    """First and last position of each stretch between host barriers."""
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for index, region in enumerate(graph.region):
        position = keys[index][0]
        first[region] = min(first.get(region, position), position)
        last[region] = max(last.get(region, position), position)
    return first, last


def merge_neighbours(graph: Graph, steps: Steps) -> list[Steps]:
    """Every order in which two steps of one merge label, next to each other among their like, are one bucket.

    The earlier one moves back to the later one when nothing between needs it, otherwise the later one moves
    forward when its inputs are there; else the two do not merge.
    """
    place = {member: position for position, step in enumerate(steps) for member in step}
    first_user = [len(steps)] * len(graph.nodes)
    for index, node in enumerate(graph.nodes):
        for source in node.inputs:
            first_user[source] = min(first_user[source], place[index])
    latest: dict[object, int] = {}
    found: list[Steps] = []
    for later, step in enumerate(steps):
        key = graph.merge_key(step[0])
        if key is None:
            continue
        earlier = latest.get(key)
        latest[key] = later
        if earlier is None or graph.region[step[0]] != graph.region[steps[earlier][0]]:
            continue
        bucket = (*steps[earlier], *step)
        if all(first_user[member] > later for member in steps[earlier]):
            found.append([*steps[:earlier], *steps[earlier + 1 : later], bucket, *steps[later + 1 :]])
        elif all(place[source] < earlier for member in step for source in graph.nodes[member].inputs):
            found.append([*steps[:earlier], bucket, *steps[earlier + 1 : later], *steps[later + 1 :]])
    return found
