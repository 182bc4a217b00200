"""What operators send: quotas, policies, what-if questions and rehearsal clusters, read strictly."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from cluster.core.decision.state import Settings
from cluster.core.errors import InvalidBody, RequestError
from cluster.core.placement.rules import PLACEMENTS
from cluster.core.policies import LIVE
from cluster.core.requests import MILLI, milli_of

Faults = list[tuple[str, str]]
AMOUNTS = ("guaranteed", "borrowable", "lendable")
RULES = {entry.name: entry for entry in fields(Settings)}
MOST_NODES = 20_000
MOST_SIMULATED = 100_000
MOST_POLICIES = 6
FASTEST = 100_000.0


@dataclass(frozen=True)
class QuotaBody:
    """A team's quota as it is asked for: kind -> amounts in thousandths; parent is a team's slug."""

    kinds: dict[str, dict[str, int | None]]
    shares: int = 1
    parent: str | None = None


@dataclass(frozen=True)
class PolicyBody:
    """A policy with the rules that differ from the defaults."""

    policy: str
    rules: dict[str, Any]


@dataclass(frozen=True)
class PreviewBody:
    """A what-if question about the live queue."""

    policies: tuple[str, ...] = ()
    quotas: dict[str, QuotaBody] = field(default_factory=dict)
    without_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeBody:
    """A simulated node."""

    name: str
    devices: int
    kind: str
    memory_bytes: int = 0
    domains: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RehearsalBody:
    """A rehearsal cluster: nodes, how fast its clock runs, teams with quotas, a policy."""

    nodes: tuple[NodeBody, ...]
    clock_speed: float = 1.0
    teams: dict[str, QuotaBody] = field(default_factory=dict)
    policy: PolicyBody | None = None


def known_fields(data: Any, known: Sequence[str], pointer: str, faults: Faults) -> Mapping[str, Any]:
    """Return an object, noting what it should not hold."""
    if not isinstance(data, Mapping):
        faults.append((pointer, "must be an object with " + ", ".join(known)))
        return {}
    for name in data:
        if name not in known:
            key = str(name).replace("~", "~0").replace("/", "~1")
            faults.append((f"{pointer}/{key}", f"is no known field; known are {', '.join(known)}"))
    return data


def read_quota(data: Any, pointer: str = "") -> QuotaBody:
    """Read `{"shares": 1, "parent": null, "quotas": [{"kind", "guaranteed", "borrowable", "lendable"}]}`.

    Amounts are devices, thousandths allowed; null is no limit. Raises InvalidBody with every fault.
    """
    faults: Faults = []
    found = _quota(data, pointer, faults)
    if faults:
        raise InvalidBody(faults)
    return found


def _quota(data: Any, pointer: str, faults: Faults) -> QuotaBody:
    given = known_fields(data, ("shares", "parent", "quotas"), pointer, faults)
    shares = given.get("shares", 1)
    if type(shares) is not int or not 0 <= shares <= 1_000_000:
        faults.append((f"{pointer}/shares", "must be a whole number from 0 to 1000000"))
        shares = 1
    parent = given.get("parent")
    if parent is not None and (not isinstance(parent, str) or not parent):
        faults.append((f"{pointer}/parent", "must be the slug of a team, or null"))
        parent = None
    rows = given.get("quotas", [])
    if not isinstance(rows, list):
        faults.append((f"{pointer}/quotas", "must be a list with one object per device kind"))
        rows = []
    kinds: dict[str, dict[str, int | None]] = {}
    for number, row in enumerate(rows):
        _quota_row(row, f"{pointer}/quotas/{number}", kinds, faults)
    return QuotaBody(kinds, shares, parent)


def _quota_row(row: Any, pointer: str, kinds: dict[str, dict[str, int | None]], faults: Faults) -> None:
    given = known_fields(row, ("kind", *AMOUNTS), pointer, faults)
    kind = given.get("kind")
    if not isinstance(kind, str) or not 1 <= len(kind) <= 100:
        faults.append((f"{pointer}/kind", "must be a kind of device"))
        return
    if kind in kinds:
        faults.append((f"{pointer}/kind", f"{kind} occurs twice"))
    kinds[kind] = {}
    for name in AMOUNTS:
        value = given.get(name, 0 if name == "guaranteed" else None)
        if value is None and name == "guaranteed":
            faults.append((f"{pointer}/{name}", "must be a number of devices"))
            continue
        try:
            kinds[kind][name] = None if value is None else milli_of(value, name)
        except RequestError as error:
            faults.append((f"{pointer}/{name}", str(error).partition(": ")[2]))
    guaranteed, lendable = kinds[kind].get("guaranteed"), kinds[kind].get("lendable")
    if guaranteed is not None and lendable is not None and lendable > guaranteed:
        faults.append((f"{pointer}/lendable", "cannot be more than what is guaranteed"))


def quota_rows(kinds: Mapping[str, Mapping[str, int | None]]) -> list[dict[str, Any]]:
    """Return stored amounts as `read_quota` reads them, in devices."""
    return [
        {"kind": kind, **{name: _devices(amounts.get(name)) for name in AMOUNTS}}
        for kind, amounts in sorted(kinds.items())
    ]


def _devices(milli: int | None) -> int | float | None:
    if milli is None:
        return None
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def read_policy(data: Any, pointer: str = "") -> PolicyBody:
    """Read `{"policy": "fair", "rules": {"min_runtime_s": 600, ...}}`."""
    faults: Faults = []
    found = _policy(data, pointer, faults)
    if faults:
        raise InvalidBody(faults)
    return found


def _policy(data: Any, pointer: str, faults: Faults) -> PolicyBody:
    given = known_fields(data, ("policy", "rules"), pointer, faults)
    policy = given.get("policy")
    if policy not in LIVE:
        faults.append((f"{pointer}/policy", f"must be one of {', '.join(LIVE)}"))
    rules = known_fields(given.get("rules") or {}, tuple(RULES), f"{pointer}/rules", faults)
    for name, value in rules.items():
        if name in RULES and (rule := _rule_fault(name, value)):
            faults.append((f"{pointer}/rules/{name}", rule))
    return PolicyBody(str(policy), dict(rules))


def _rule_fault(name: str, value: Any) -> str | None:
    if name == "placement":
        return None if value in PLACEMENTS else f"must be one of {', '.join(PLACEMENTS)}"
    whole = name in ("most_evictions", "preemption_attempts")
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not 0 <= value <= 1e9 or (whole and value != int(value)):
        return f"must be a {'whole ' if whole else ''}number from 0"
    return None


def read_preview(data: Any) -> PreviewBody:
    """Read `{"policies": [...], "quotas": {team: quota}, "without_nodes": [...]}`; all are optional."""
    faults: Faults = []
    given = known_fields(data, ("policies", "quotas", "without_nodes"), "", faults)
    policies = given.get("policies", [])
    good = isinstance(policies, list) and len(policies) <= MOST_POLICIES
    if not good or any(name not in LIVE for name in policies):
        faults.append(("/policies", f"must be at most {MOST_POLICIES} of {', '.join(LIVE)}"))
        policies = []
    quotas: dict[str, QuotaBody] = {}
    teams = given.get("quotas", {})
    if not isinstance(teams, Mapping):
        faults.append(("/quotas", "must be an object: slug of a team -> its quota"))
        teams = {}
    for slug, quota in teams.items():
        quotas[str(slug)] = _quota(quota, f"/quotas/{slug}", faults)
    nodes = given.get("without_nodes", [])
    if not isinstance(nodes, list) or not all(isinstance(name, str) for name in nodes):
        faults.append(("/without_nodes", "must be a list of names of nodes"))
        nodes = []
    if faults:
        raise InvalidBody(faults)
    return PreviewBody(tuple(dict.fromkeys(policies)), quotas, tuple(nodes))


def read_rehearsal(data: Any) -> RehearsalBody:
    """Read a rehearsal cluster; see docs/scheduling.md for an example. Raises InvalidBody."""
    faults: Faults = []
    given = known_fields(data, ("nodes", "clock_speed", "teams", "policy", "rules"), "", faults)
    speed = given.get("clock_speed", 1.0)
    number = isinstance(speed, int | float) and not isinstance(speed, bool)
    if not number or not 0.01 <= speed <= FASTEST:
        faults.append(("/clock_speed", f"must be a number from 0.01 to {FASTEST:g}"))
        speed = 1.0
    nodes = _nodes(given.get("nodes"), faults)
    teams = given.get("teams", {})
    if not isinstance(teams, Mapping):
        faults.append(("/teams", "must be an object: slug of a team -> its quota"))
        teams = {}
    quotas = {str(slug): _team(slug, quota, faults) for slug, quota in teams.items()}
    policy = None
    if "policy" in given or "rules" in given:
        policy = _policy(
            {"policy": given.get("policy", "fair"), "rules": given.get("rules") or {}}, "", faults
        )
    if faults:
        raise InvalidBody(faults)
    return RehearsalBody(tuple(nodes), float(speed), quotas, policy)


def _team(slug: Any, quota: Any, faults: Faults) -> QuotaBody:
    text = isinstance(slug, str) and 1 <= len(slug) <= 50
    if not text or not all(c.isascii() and (c.isalnum() or c in "-_") for c in slug):
        faults.append((f"/teams/{slug}", "must be a slug: letters, digits, - and _, at most 50"))
    return _quota(quota, f"/teams/{slug}", faults)


def _nodes(rows: Any, faults: Faults) -> list[NodeBody]:
    if not isinstance(rows, list) or not rows:
        faults.append(("/nodes", "must be a list of nodes, at least one"))
        return []
    nodes: list[NodeBody] = []
    for number, row in enumerate(rows):
        nodes += _node_group(row, f"/nodes/{number}", faults)
        if len(nodes) > MOST_NODES or sum(node.devices for node in nodes) > MOST_SIMULATED:
            faults.append(("/nodes", f"more than {MOST_NODES} nodes or {MOST_SIMULATED} devices"))
            return []
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        faults.append(("/nodes", "two nodes have the same name"))
    return nodes


def _node_group(row: Any, pointer: str, faults: Faults) -> list[NodeBody]:
    """Read one node, or with `count` so many equal ones, `NAME-0` and so on."""
    before = len(faults)
    given = known_fields(
        row, ("name", "count", "devices", "kind", "memory_bytes", "domains"), pointer, faults
    )
    name, kind, domains = given.get("name"), given.get("kind"), given.get("domains", {})
    if not isinstance(name, str) or not 1 <= len(name) <= 150:
        faults.append((f"{pointer}/name", "must be a text of 1 to 150 characters"))
    if not isinstance(kind, str) or not 1 <= len(kind) <= 100:
        faults.append((f"{pointer}/kind", "must be a text of 1 to 100 characters"))
    numbers = {"count": (1, MOST_NODES, 1), "devices": (1, 1024, 8), "memory_bytes": (0, 2**60, 0)}
    values = {}
    for field_name, (low, high, default) in numbers.items():
        value = given.get(field_name, default)
        if type(value) is not int or not low <= value <= high:
            faults.append((f"{pointer}/{field_name}", f"must be a whole number from {low} to {high}"))
            value = default
        values[field_name] = value
    texts = isinstance(domains, Mapping) and all(isinstance(value, str) for value in domains.values())
    if not texts:
        faults.append((f"{pointer}/domains", "must be an object: level -> domain, such as rack -> r1"))
    if len(faults) > before:
        return []
    names = [str(name)] if "count" not in given else [f"{name}-{i}" for i in range(values["count"])]
    shared = (values["devices"], str(kind), values["memory_bytes"], dict(domains))
    return [NodeBody(label, *shared) for label in names]
