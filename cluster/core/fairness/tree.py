"""Fair Tree: users ranked by how far each branch above them is below its share (Slurm's multifactor default).

Level share = shares / usage, both as parts of what the siblings have; a branch ahead of its sibling puts
all its users ahead of all the sibling's users. Branches with equal level shares are merged and their
children ranked together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.core.errors import QuotaError

ROOT = ""


@dataclass(frozen=True, slots=True)
class Account:
    """A team or user; `usage` counts only what is charged to itself, not to its children."""

    name: str
    parent: str = ROOT
    shares: int = 1
    usage: float = 0.0


def fair_ranks(accounts: Sequence[Account]) -> dict[str, float]:
    """Return each leaf's fair factor in (0, 1], 1 for the first in line; equals have the same.

    Raises:
        QuotaError: a name twice, an unknown parent, a cycle, negative shares or usage.
    """
    children = _children(accounts)
    totals = _totals(children)
    ranked = _rank([children.get(ROOT, [])], children, totals)
    leaves = sum(len(group) for group in ranked)
    factors: dict[str, float] = {}
    ahead = 0
    for group in ranked:
        factors.update(dict.fromkeys(group, (leaves - ahead) / leaves))
        ahead += len(group)
    return factors


def level_share(shares: float, siblings_shares: float, usage: float, siblings_usage: float) -> float:
    """Return S / U with both normalised to the siblings; infinite without usage, 0 without shares."""
    if shares <= 0:
        return 0.0
    if usage <= 0:
        return math.inf
    return shares / siblings_shares * (siblings_usage / usage)


def _children(accounts: Sequence[Account]) -> dict[str, list[Account]]:
    by_name: dict[str, Account] = {}
    for account in accounts:
        if account.name in by_name or account.name == ROOT:
            raise QuotaError(f"account {account.name!r}: the name is empty or occurs twice")
        if account.shares < 0 or not account.usage >= 0:
            raise QuotaError(f"account {account.name!r}: shares and usage cannot be negative or NaN")
        by_name[account.name] = account
    children: dict[str, list[Account]] = {}
    for account in accounts:
        if account.parent != ROOT and account.parent not in by_name:
            raise QuotaError(f"account {account.name!r}: its parent {account.parent!r} does not exist")
        children.setdefault(account.parent, []).append(account)
    _refuse_cycles(by_name)
    return children


def _refuse_cycles(by_name: Mapping[str, Account]) -> None:
    safe: set[str] = {ROOT}
    for name in by_name:
        path: list[str] = []
        while name not in safe:
            if name in path:
                raise QuotaError(f"account {name!r}: it is its own ancestor")
            path.append(name)
            name = by_name[name].parent
        safe.update(path)


def _totals(children: Mapping[str, Sequence[Account]]) -> dict[str, float]:
    """Return each account's usage with everything below it."""
    order = list(children.get(ROOT, []))
    for account in order:  # grows while it is walked: parents before children
        order.extend(children.get(account.name, []))
    totals = {account.name: account.usage for account in order}
    for account in reversed(order):
        if account.parent != ROOT:
            totals[account.parent] += totals[account.name]
    return totals


def _rank(
    families: Sequence[Sequence[Account]], children: Mapping[str, list[Account]], totals: Mapping[str, float]
) -> list[list[str]]:
    """Return groups of leaves, first in line first; the members of several families are ranked together."""
    scored: dict[float, list[Account]] = {}
    for family in families:
        shares, usage = sum(a.shares for a in family), sum(totals[a.name] for a in family)
        for account in family:
            share = level_share(account.shares, shares, totals[account.name], usage)
            scored.setdefault(share, []).append(account)
    groups: list[list[str]] = []
    for share in sorted(scored, reverse=True):
        equals = scored[share]
        leaves = [account.name for account in equals if account.name not in children]
        if leaves:
            groups.append(leaves)
        branches = [children[account.name] for account in equals if account.name in children]
        if branches:
            groups.extend(_rank(branches, children, totals))
    return groups
