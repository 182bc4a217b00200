"""How ranks agree on a change of layout through the launcher's store, before any connection between them.

Every survivor posts a vote; all read all votes and draw the same conclusions from them, so nobody decides for
the others. A vote that does not come is waited for until a newer change supersedes this one.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from workers.trainer.parallel.desk import Change
from workers.trainer.parallel.errors import Abandoned, Refused
from workers.trainer.parallel.state import Progress

SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.002, 0.05


@dataclass(frozen=True)
class Vote:
    """What a rank says of itself.

    `layout` is the document by which it holds its boxes, None if it holds none; `prepared` the step whose
    gradients it has summed but not yet applied; `norm` the gradient norm of the step it applied last.
    """

    rank: int
    digest: str
    progress: dict[str, Any] | None
    layout: dict[str, Any] | None
    prepared: int | None = None
    norm: float = 0.0

    @property
    def step(self) -> int:
        """Committed steps; -1 without state."""
        return -1 if self.progress is None else int(self.progress["step"])


class Board:
    """The part of the store that belongs to one change."""

    def __init__(
        self, store: Any, change: Change, rank: int, timeout_s: float, superseded: Callable[[], bool]
    ) -> None:
        self._store, self._change, self._rank = store, change, rank
        self._timeout_s, self._superseded = timeout_s, superseded
        self._posted: list[str] = []

    def exchange(self, topic: str, value: Any) -> dict[int, Any]:
        """Post a value and return those of all survivors; Abandoned if one does not come."""
        self._post(topic, value)
        ranks = self._change.survivors
        keys = [self._key(topic, rank) for rank in ranks]
        self._await(topic, keys)
        return {rank: json.loads(self._store.get(key)) for rank, key in zip(ranks, keys, strict=True)}

    def announce(self, topic: str, value: Callable[[], Any]) -> Any:
        """Return what the first survivor says; it alone computes the value."""
        leader = self._change.survivors[0]
        key = self._key(topic, leader)
        if self._rank == leader:
            self._post(topic, value())
        self._await(topic, [key])
        return json.loads(self._store.get(key))

    def clear(self) -> None:
        """Take down what this rank posted; only after all survivors have come to a later change."""
        for key in self._posted:
            self._store.delete_key(key)
        self._posted.clear()

    def _post(self, topic: str, value: Any) -> None:
        key = self._key(topic, self._rank)
        self._store.set(key, json.dumps(value))
        self._posted.append(key)

    def _key(self, topic: str, rank: int) -> str:
        return f"epoch/{self._change.epoch}/{topic}/{rank}"

    def _await(self, topic: str, keys: list[str]) -> None:
        begun, look_s = time.monotonic(), SHORTEST_LOOK_S
        while not self._check(keys):
            if self._superseded():
                raise Abandoned(f"epoch {self._change.epoch} was superseded while waiting for: {topic}")
            if time.monotonic() - begun > self._timeout_s:
                raise Abandoned(f"not every rank came to: {topic}, within {self._timeout_s:g} s")
            time.sleep(look_s)
            look_s = min(1.5 * look_s, LONGEST_LOOK_S)

    def _check(self, keys: list[str]) -> bool:
        try:
            found: bool = self._store.check(keys)
        except RuntimeError as error:
            raise Abandoned(f"the launcher's store is gone: {error}") from None
        return found


def agreed(change: Change, votes: dict[int, Vote]) -> None:
    """Refuse a change that not all ranks understand alike."""
    others = sorted(rank for rank, vote in votes.items() if vote.digest != change.digest)
    if others:
        raise Refused(f"the plan's digest differs on ranks {', '.join(map(str, others))}")


def rolled_forward(votes: dict[int, Vote]) -> tuple[dict[int, Vote], float | None]:
    """Complete a commit that only some ranks saw; returns the votes after it and the norm to apply.

    If any rank applied a step, every rank had voted for it and has its gradients; those that did not see the
    vote's outcome apply it now. The norm is None where nobody needs it.
    """
    last = max((vote.step for vote in votes.values()), default=-1)
    leaders = [vote for vote in votes.values() if vote.step == last and vote.progress is not None]
    behind = [vote for vote in votes.values() if vote.prepared == last and vote.step == last - 1]
    if not leaders or not behind:
        return votes, None
    done = {
        vote.rank: replace(vote, progress=leaders[0].progress, prepared=None, norm=leaders[0].norm)
        for vote in behind
    }
    return {**votes, **done}, leaders[0].norm


def common_progress(votes: dict[int, Vote]) -> Progress | None:
    """The progress of those who hold the newest state; None if nobody holds any. Refused if they differ."""
    last = max((vote.step for vote in votes.values()), default=-1)
    held = [vote.progress for vote in votes.values() if vote.step == last and vote.progress is not None]
    if not held:
        return None
    if any(row != held[0] for row in held):
        raise Refused(f"ranks at step {last} differ in their data cursor or random state")
    return Progress(**held[0])
