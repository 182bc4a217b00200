"""What `forebay overlap` promises, written down once more the slow way: the oracle of the tests.

Works on the JSON form. An order is a list of tuples of ids; a tuple of several ids is a bucket.
"""

import random
from collections.abc import Iterator


def chain(stages: int, comm: float, tiles: int = 2, attention: float = 4.0, mlp: float = 8.0) -> dict:
    """The chain of helix.md 4.3: blocks of attention and MLP with a collective after each."""
    nodes = []
    for tile in range(tiles):
        previous: list[str] = []
        for stage in range(stages):
            for name, time in (("a", attention), ("m", mlp)):
                nodes += triple(f"{name}{stage}.{tile}", time / tiles, comm / tiles, previous, tile)
                previous = [f"w.{name}{stage}.{tile}"]
    return {"nodes": nodes}


def triple(name: str, compute: float, comm: float, inputs: list[str], tile: int | None) -> list[dict]:
    return [
        {"id": name, "kind": "compute", "time": compute, "inputs": inputs, "bytes": 1024, "tile": tile},
        {
            "id": f"r.{name}",
            "kind": "comm",
            "group": "tp",
            "time": comm,
            "inputs": [name],
            "bytes": 1024,
            "tile": tile,
        },
        {"id": f"w.{name}", "kind": "wait", "inputs": [f"r.{name}"], "tile": tile},
    ]


def random_graph(rng: random.Random, size: int = 8, *, merge: bool = False, syncs: bool = True) -> dict:
    """Any legal graph of two tiles and shared nodes."""
    nodes: list[dict] = []
    values: list[str] = []
    comms: list[str] = []
    for number in range(size):
        kind = rng.choice(
            ["compute"] * 4
            + ["comm"] * 4
            + ["wait"] * 4
            + ["view"]
            + ["sync"] * (syncs and rng.random() < 0.5)
        )
        if kind == "wait" and not comms:
            kind = "comm"
        if kind == "view" and not values:
            kind = "compute"
        name = f"{kind[0]}{number}"
        tile = rng.choice([0, 0, 1, 1, None])
        node = {
            "id": name,
            "kind": kind,
            "tile": tile,
            "bytes": rng.randint(0, 5),
            "time": float(rng.randint(0, 8)),
        }
        if kind == "wait":
            node["inputs"] = [rng.choice(comms)]
        elif kind == "view":
            node["inputs"] = [rng.choice(values)]
        else:
            node["inputs"] = rng.sample(values, min(len(values), rng.randint(0, 2)))
        if kind == "comm":
            node["group"] = rng.choice(["tp", "tp", "ep"])
        if merge and kind in ("compute", "comm") and rng.random() < 0.7:
            node["merge"] = "x"
            node["latency"] = float(rng.randint(0, int(node["time"])))
        nodes.append(node)
        if kind == "comm":
            comms.append(name)
        elif kind != "sync":
            values.append(name)
    return {"nodes": nodes}


class Model:
    """Semantics of a document, straight from its text."""

    def __init__(self, document: dict) -> None:
        self.rows = {row["id"]: row for row in document["nodes"]}
        self.names = list(self.rows)
        used = {source for row in self.rows.values() for source in row["inputs"]}
        self.outputs = document.get("outputs") or [name for name in self.names if name not in used]
        slowdown = document.get("slowdown") or {}
        self.a, self.b = slowdown.get("compute", 0.0), slowdown.get("comm", 0.0)

    def storages(self, name: str) -> set[str]:
        row = self.rows[name]
        if row["kind"] in ("compute", "comm"):
            return {name}
        if row["kind"] == "sync":
            return set()
        return set().union(*(self.storages(source) for source in row["inputs"]))

    def awaited(self, wait: str) -> set[str]:
        found = set().union(*(self.storages(source) for source in self.rows[wait]["inputs"]))
        return {name for name in found if self.rows[name]["kind"] == "comm"}

    def time(self, step: tuple[str, ...]) -> float:
        rows = [self.rows[name] for name in step]
        if rows[0]["kind"] not in ("compute", "comm"):
            return 0.0
        latencies = [row.get("latency", 0.0) for row in rows]
        return max(latencies) + sum(row["time"] - late for row, late in zip(rows, latencies, strict=True))

    def makespan(self, order: list[tuple[str, ...]]) -> float:
        compute, groups, end = 0.0, {}, {}
        for step in order:
            row = self.rows[step[0]]
            if row["kind"] == "compute":
                compute += self.time(step)
            elif row["kind"] == "comm":
                start = max(groups.get(row["group"], 0.0), compute)
                groups[row["group"]] = start + self.time(step)
                end.update({name: start + self.time(step) for name in step})
            elif row["kind"] == "wait":
                compute = max([compute, *(end[comm] for name in step for comm in self.awaited(name))])
        return max([compute, *groups.values()])

    def peak(self, order: list[tuple[str, ...]]) -> float:
        """Look at every storage at every step."""
        place = {name: number for number, step in enumerate(order) for name in step}
        waits: dict[str, list[int]] = {}
        for name, row in self.rows.items():
            if row["kind"] == "wait":
                for comm in self.awaited(name):
                    waits.setdefault(comm, []).append(place[name])
        never = len(order) + 1
        unit = {name: step for step in order for name in step}
        last = {}
        for storage in self.names:
            if self.rows[storage]["kind"] not in ("compute", "comm"):
                continue
            ends = [place[storage]]
            for user, row in self.rows.items():
                if any(storage in self.storages(source) for source in row["inputs"]):
                    ends.append(place[user])
                    if row["kind"] == "comm":
                        ends.append(min([w for one in unit[user] for w in waits.get(one, [])], default=never))
            if self.rows[storage]["kind"] == "comm" and storage not in waits:
                ends.append(never)
            if any(storage in self.storages(output) for output in self.outputs):
                ends.append(never)
            last[storage] = max(ends)
        return max(
            sum(
                self.rows[storage]["bytes"]
                for storage in last
                if place[storage] <= now <= max(last[one] for one in unit[storage])
            )
            for now in range(len(order))
        )

    def region(self, name: str) -> tuple[int, bool]:
        before = self.names[: self.names.index(name)]
        return sum(self.rows[one]["kind"] == "sync" for one in before), self.rows[name]["kind"] == "sync"

    def legal(self, name: str, done: set[str]) -> bool:
        if any(source not in done for source in self.rows[name]["inputs"]):
            return False
        return all(one in done for one in self.names if self.region(one) < self.region(name))

    def is_legal_order(self, order: list[tuple[str, ...]]) -> bool:
        done: set[str] = set()
        for step in order:
            keys = {tuple(self.rows[name].get(k) for k in ("kind", "group", "merge")) for name in step}
            if not all(self.legal(name, done) for name in step) or len(keys) > 1:
                return False
            if len(step) > 1 and self.rows[step[0]].get("merge") is None:
                return False
            done.update(step)
        return sorted(name for step in order for name in step) == sorted(self.names)

    def interleavings(self, *, merge: bool = False) -> Iterator[list[tuple[str, ...]]]:
        """Both tiles in order, shared nodes as soon as they are legal; with `merge` neighbours may be one."""
        tiles = sorted({row["tile"] for row in self.rows.values()} - {None}) or [None]
        streams = [[n for n in self.names if self.rows[n]["tile"] == tile] for tile in tiles]
        shared = [n for n in self.names if self.rows[n]["tile"] not in tiles]
        yield from self._extend([], set(), streams, shared, merge)

    def _extend(self, order, done, streams, shared, merge):
        ready = [name for name in shared if name not in done and self.legal(name, done)]
        if ready:
            yield from self._extend([*order, (ready[0],)], done | {ready[0]}, streams, shared, merge)
            return
        if not any(streams):
            yield order
            return
        for step in self._steps(streams, done, merge):
            rest = [[name for name in stream if name not in step] for stream in streams]
            yield from self._extend([*order, step], done | set(step), rest, shared, merge)

    def _steps(self, streams, done, merge):
        heads = [stream[:1] for stream in streams]
        for head in heads:
            if head and self.legal(head[0], done):
                yield tuple(head)
        if merge:
            first = streams[0]
            second = streams[1] if len(streams) > 1 else []
            for p in range(len(first) + 1):
                for q in range(len(second) + 1):
                    step = (*first[:p], *second[:q])
                    keys = {
                        tuple(self.rows[name].get(k) for k in ("kind", "group", "merge")) for name in step
                    }
                    mergeable = (
                        len(step) > 1 and len(keys) == 1 and self.rows[step[0]].get("merge") is not None
                    )
                    if mergeable and all(self.legal(name, done) for name in step):
                        yield step


def subset_bound(graph) -> float:
    """Largest min head + sum of times + min tail over {head >= h, tail >= q} of each stream."""
    count = len(graph.nodes)
    users = [[i for i in range(count) if j in graph.nodes[i].inputs] for j in range(count)]
    heads: list[float] = []
    for node in graph.nodes:
        heads.append(max((heads[s] + graph.nodes[s].time_s for s in node.inputs), default=0.0))
    tails = [0.0] * count
    for j in reversed(range(count)):
        tails[j] = max((graph.nodes[i].time_s + tails[i] for i in users[j]), default=0.0)
    best = 0.0
    for stream in {node.group for node in graph.nodes}:
        jobs = [i for i, n in enumerate(graph.nodes) if n.time_s > 0 and n.group == stream]
        for h in {heads[i] for i in jobs}:
            for q in {tails[i] for i in jobs}:
                chosen = [i for i in jobs if heads[i] >= h and tails[i] >= q]
                if chosen:
                    total = sum(graph.nodes[i].time_s for i in chosen)
                    best = max(best, min(heads[i] for i in chosen) + total + min(tails[i] for i in chosen))
    return best
