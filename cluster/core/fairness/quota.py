"""Guaranteed and borrowable quota per device kind, in thousandths of a device.

A team may always use what it is guaranteed. Above that it borrows what others are guaranteed and do not
use, as far as they lend it and as far as it may borrow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cluster.core.errors import QuotaError


@dataclass(frozen=True, slots=True)
class TeamQuota:
    """A team's place in the tree and its quota per device kind (thousandths).

    Attributes:
        guaranteed: kind to what it may always have; absent is 0.
        borrow_limit: kind to what it may have above that; absent is no limit.
        lend_limit: kind to how much of the guarantee others may use; absent is all of it.
    """

    name: str
    parent: str = ""
    shares: int = 1
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    borrow_limit: Mapping[str, int] = field(default_factory=dict)
    lend_limit: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for label in ("guaranteed", "borrow_limit", "lend_limit"):
            for kind, milli in getattr(self, label).items():
                if type(milli) is not int or milli < 0:
                    raise QuotaError(
                        f"team {self.name!r}, {label} of {kind!r}: a whole number from 0 is needed"
                    )
        if type(self.shares) is not int or self.shares < 0:
            raise QuotaError(f"team {self.name!r}, shares: a whole number from 0 is needed")


@dataclass(frozen=True, slots=True)
class QuotaAnswer:
    """Whether a request passes, and the numbers behind it (thousandths).

    Attributes:
        rule: empty where it passes, otherwise `borrow_limit` or `lent_out`.
        borrowed: how much of the request is above the guarantee.
        room: how much would pass now.
    """

    rule: str
    borrowed: int
    room: int

    @property
    def passes(self) -> bool:
        return not self.rule


class QuotaBook:
    """Use by team and kind, against quotas and capacity; without teams everything passes."""

    def __init__(self, teams: Sequence[TeamQuota], capacity: Mapping[str, int]) -> None:
        self.teams = {team.name: team for team in teams}
        if len(self.teams) != len(teams):
            raise QuotaError("a team occurs twice")
        self.capacity = dict(capacity)
        self.used: dict[str, dict[str, int]] = {name: {} for name in self.teams}
        # kind -> the sum over all teams of what each holds or keeps back, whichever is more
        self._taken: dict[str, int] = {}
        self._ceilings: dict[tuple[str, str], int] = {}

    def copy(self) -> "QuotaBook":
        """Return an independent book in the same state."""
        twin = QuotaBook(list(self.teams.values()), self.capacity)
        twin.used = {team: dict(kinds) for team, kinds in self.used.items()}
        twin._taken = dict(self._taken)
        return twin

    def guaranteed(self, team: str, kind: str) -> int:
        """Return a team's guarantee; an unknown team has none."""
        return self.teams[team].guaranteed.get(kind, 0) if team in self.teams else 0

    def in_use(self, team: str, kind: str) -> int:
        """Return what a team's jobs hold."""
        return self.used.get(team, {}).get(kind, 0)

    def borrowing(self, team: str, kind: str) -> int:
        """Return what a team holds above its guarantee; 0 without teams, where nothing is anybody's."""
        return max(0, self.in_use(team, kind) - self.guaranteed(team, kind)) if self.teams else 0

    def charge(self, team: str, kind: str, milli: int) -> None:
        """Count a start (positive) or an end (negative)."""
        kinds = self.used.setdefault(team, {})
        old = kinds.get(kind, 0)
        kinds[kind] = old + milli
        if kind in self._taken:
            floor = self._unlendable(team, kind)
            self._taken[kind] += max(old + milli, floor) - max(old, floor)
        if kinds[kind] < 0:
            raise QuotaError(f"team {team!r} gave back more {kind!r} than it held")

    def ceiling(self, team: str, kind: str) -> int:
        """Return the most a team could ever hold of a kind."""
        if not self.teams:
            return self.capacity.get(kind, 0)
        if (team, kind) not in self._ceilings:
            self._ceilings[team, kind] = self._ceiling(team, kind)
        return self._ceilings[team, kind]

    def _ceiling(self, team: str, kind: str) -> int:
        capacity = self.capacity.get(kind, 0)
        kept_back = sum(self._unlendable(other, kind) for other in self.teams if other != team)
        ceiling = max(min(self.guaranteed(team, kind), capacity), capacity - kept_back)
        limit = self.teams[team].borrow_limit.get(kind) if team in self.teams else None
        return ceiling if limit is None else min(ceiling, self.guaranteed(team, kind) + limit)

    def ask(self, team: str, kind: str, milli: int) -> QuotaAnswer:
        """Return whether a team may hold so much more of a kind now."""
        if not self.teams:
            return QuotaAnswer("", 0, self.capacity.get(kind, 0))
        guaranteed, used = self.guaranteed(team, kind), self.in_use(team, kind)
        borrowed = max(0, used + milli - guaranteed) - max(0, used - guaranteed)
        within = max(0, guaranteed - used)
        limit = self.teams[team].borrow_limit.get(kind) if team in self.teams else None
        others = self._all_taken(kind) - max(used, self._unlendable(team, kind))
        lendable = max(within, self.capacity.get(kind, 0) - others - used)
        allowed = lendable if limit is None else min(lendable, max(within, guaranteed + limit - used))
        if milli <= within or milli <= allowed:
            return QuotaAnswer("", borrowed, allowed)
        limited = limit is not None and milli > guaranteed + limit - used
        return QuotaAnswer("borrow_limit" if limited else "lent_out", borrowed, max(allowed, 0))

    def _all_taken(self, kind: str) -> int:
        if kind not in self._taken:
            names = {**self.teams, **self.used}
            self._taken[kind] = sum(
                max(self.in_use(name, kind), self._unlendable(name, kind)) for name in names
            )
        return self._taken[kind]

    def _unlendable(self, team: str, kind: str) -> int:
        quota = self.teams.get(team)
        if quota is None or kind not in quota.lend_limit:
            return 0
        return max(0, quota.guaranteed.get(kind, 0) - quota.lend_limit[kind])


def quota_warnings(teams: Sequence[TeamQuota], capacity: Mapping[str, int]) -> list[str]:
    """Return sentences about guarantees that cannot all be kept on this capacity."""
    warnings = []
    for kind in sorted({kind for team in teams for kind in team.guaranteed}):
        promised = sum(team.guaranteed.get(kind, 0) for team in teams)
        if promised > capacity.get(kind, 0):
            warnings.append(
                f"{promised / 1000:g} devices of kind {kind or 'any'} are guaranteed, "
                f"the cluster has {capacity.get(kind, 0) / 1000:g}"
            )
    return warnings
