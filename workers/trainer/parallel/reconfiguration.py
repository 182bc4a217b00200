"""Live change of layout at an iteration boundary: vote, rebuild, transfer, verify, resume.

Until the last step nothing a rank holds is touched: the new state is built beside the old one and adopted
only when every survivor has verified it. Whatever goes wrong before leaves all ranks with what they had,
ready for the next epoch. Ranks that adopted and ranks that did not hold the same logical state at the same
step, so the next epoch may start from any mixture of them.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from workers.trainer.parallel import restoring
from workers.trainer.parallel.agreement import Board, Vote, agreed, common_progress, rolled_forward
from workers.trainer.parallel.desk import Change
from workers.trainer.parallel.groups import Groups, Link
from workers.trainer.parallel.moving import Passage, check_same, move_state, passage
from workers.trainer.parallel.placement import Placement
from workers.trainer.parallel.reduction import buckets
from workers.trainer.parallel.spec import RunSpec, plan_digest
from workers.trainer.parallel.state import Progress, ShardedState


@dataclass
class Holding:
    """What a rank has between two iterations: its tensors by the layout they are cut in, and the progress.

    `prepared` is the step whose summed gradients wait in the state's buffers, None if there are none; `norm`
    the gradient norm of the step applied last.
    """

    state: ShardedState | None = None
    layout: dict[str, Any] | None = None
    progress: Progress | None = None
    prepared: int | None = None
    norm: float = 0.0


@dataclass
class Outcome:
    """A completed change: what this rank holds now and the connections it works with."""

    holding: Holding
    placement: Placement
    groups: Groups
    board: Board
    sent_bytes: int
    restored: str | None


class Reconfiguration:
    """One change of layout on one rank."""

    def __init__(
        self,
        spec: RunSpec,
        symbols: int,
        change: Change,
        me: int,
        link: Link,
        device: torch.device,
        superseded: Callable[[], bool],
        report: Callable[[str, float], None],
    ) -> None:
        self.spec, self.symbols, self.change, self.me, self.device = spec, symbols, change, me, device
        self.board = Board(link.store, change, me, spec.timeout_s, superseded)
        self.groups = Groups(link, change.epoch, me, device)
        self.report = report
        self._placements: dict[str, Placement] = {}

    def run(self, holding: Holding, digest: str, apply: Callable[[float], None]) -> Outcome:
        """Carry it out. `digest` is what this rank makes of the plan; `apply` completes a prepared step.

        Raises Abandoned where a rank is lost or a newer change came, Refused where the ranks disagree,
        ImpossibleRun for a layout that cannot run; the holding is then as it was.
        """
        try:
            return self._run(holding, digest, apply)
        except Exception:
            self.groups.close()
            raise

    def _run(self, holding: Holding, digest: str, apply: Callable[[float], None]) -> Outcome:
        begun = time.monotonic()
        placement = self._placed(self.change.plan)
        votes = self._vote(holding, digest, apply)
        begun = self._phase("vote", begun)
        everyone = self.change.survivors
        self.groups.build([everyone, *_sets(placement)])
        begun = self._phase("rebuild", begun)
        way, progress, restored = self._way(votes, placement)
        mine = None if way is None or self.me not in way.before else holding.state
        new = self._state(way, mine, placement)
        sent = 0
        if way is None:
            progress = restoring.restore(new, self.spec, restored)
        elif way.plan.moves or new is not mine:
            sent = move_state(way, self.me, mine, new, self.groups.of(everyone))
        begun = self._phase("transfer", begun)
        self._verify(way, mine, new)
        self._phase("verify", begun)
        if everyone != placement.working:
            self.groups.drop(everyone)
        works = self.me in placement.seats
        after = Holding(new, self.change.plan, progress, norm=holding.norm) if works else Holding()
        return Outcome(after, placement, self.groups, self.board, sent, restored)

    def _placed(self, document: dict[str, Any]) -> Placement:
        digest = plan_digest(document)
        if digest not in self._placements:
            self._placements[digest] = Placement(self.spec, self.spec.read(document))
        return self._placements[digest]

    def _phase(self, name: str, begun: float) -> float:
        now = time.monotonic()
        self.report(name, now - begun)
        return now

    def _vote(self, holding: Holding, digest: str, apply: Callable[[float], None]) -> dict[int, Vote]:
        own = Vote(
            self.me,
            digest,
            None if holding.progress is None else holding.progress.to_json(),
            holding.layout,
            holding.prepared,
            holding.norm,
        )
        votes = {rank: Vote(**row) for rank, row in self.board.exchange("vote", asdict(own)).items()}
        agreed(self.change, votes)
        forward, norm = rolled_forward(votes)
        if norm is not None and forward[self.me] is not votes[self.me]:
            apply(norm)
        return forward

    def _way(
        self, votes: dict[int, Vote], placement: Placement
    ) -> tuple[Passage | None, Progress | None, str | None]:
        """How the state gets there: by moving it, or, where a box has no living holder, from a checkpoint."""
        progress = common_progress(votes)
        if progress is not None:
            way = passage(self.spec, votes, placement, self._placed)
            if not way.plan.needs_checkpoint:
                return way, progress, None
        return None, None, self.board.announce("origin", lambda: restoring.newest(self.spec, progress))

    def _state(self, way: Passage | None, old: ShardedState | None, placement: Placement) -> ShardedState:
        boxes = placement.boxes(self.me)
        if way is not None and old is not None and list(old.boxes.values()) == boxes:
            return old
        return ShardedState(self.spec, self.symbols, boxes, self.device)

    def _verify(self, way: Passage | None, old: ShardedState | None, new: ShardedState) -> None:
        """Compare the bits of every box before and after, over all ranks, then wait until all agree."""
        cells = [] if way is None else way.cells
        sums = {
            "before": {} if old is None else old.checksums(cells),
            "after": {} if new is old else new.checksums(cells),
        }
        check_same(self.board.exchange("sums", sums))
        self.board.exchange("verified", True)


def _sets(placement: Placement) -> list[tuple[int, ...]]:
    """Every set of ranks that must be connected to train in a layout."""
    groups = [group for replica in placement.groups for group in replica]
    return [placement.working, *groups, *(bucket.holders for bucket in buckets(placement))]
