"""The training thread of a rank: changes of layout, iterations between them, checkpoints, the end."""

import math
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from jobs.core.layout.transfer import Box
from workers.trainer.parallel.agreement import Board
from workers.trainer.parallel.checkpoint import CheckpointWriter, Label, export_model
from workers.trainer.parallel.data import Packer, load_corpus
from workers.trainer.parallel.desk import Change, Desk
from workers.trainer.parallel.errors import Abandoned, ParallelError
from workers.trainer.parallel.groups import Link
from workers.trainer.parallel.heap import give_back
from workers.trainer.parallel.hooks import BubbleHook
from workers.trainer.parallel.optimizer import apply_step
from workers.trainer.parallel.reconfiguration import Holding, Outcome, Reconfiguration
from workers.trainer.parallel.reduction import GradientReduction
from workers.trainer.parallel.runner import Iteration, Record, Runner, Waits
from workers.trainer.parallel.spec import RunSpec, plan_digest
from workers.trainer.parallel.state import GRADIENT, Progress, ShardedState


class Epoch:
    """What a rank works with between two changes of layout."""

    def __init__(self, number: int, outcome: Outcome, me: int, runner: Runner, state: ShardedState) -> None:
        self.number, self.placement, self.groups = number, outcome.placement, outcome.groups
        self.runner = runner
        self.world = outcome.groups.of(outcome.placement.working)
        self.reduction = GradientReduction(outcome.placement, me, state, outcome.groups)
        self.leads = me == outcome.placement.working[0]


@dataclass
class Prepared:
    """An iteration whose gradients are summed: the progress once they are applied, and what to tell of it."""

    progress: Progress
    epoch: Epoch
    record: Record
    started_s: float


class Trainer:
    """All a rank does, in one thread; `desk` connects it with the launcher."""

    def __init__(
        self,
        spec: RunSpec,
        me: int,
        link: Link,
        desk: Desk,
        device: torch.device,
        hook: BubbleHook | None = None,
    ) -> None:
        self.spec, self.me, self.link, self.desk, self.device = spec, me, link, desk, device
        self.corpus = load_corpus(spec.context)
        self.packer = Packer(self.corpus, spec.microbatch_tokens, spec.seed)
        self.hook = hook
        self.holding = Holding()
        self.number = -1
        self.phase = "warmup"
        self.writer = CheckpointWriter(
            spec.folder,
            spec.checkpoints_kept,
            spec.timeout_s,
            link.launch,
            lambda: self._newer(self.number),
            lambda: spec.known_step if self.desk.known_step is None else self.desk.known_step,
        )
        self._prepared: Prepared | None = None
        self._writers: set[int] = set()
        self._boards: list[Board] = []
        self._written: Label | None = None

    @property
    def step(self) -> int:
        """Committed steps."""
        return 0 if self.holding.progress is None else self.holding.progress.step

    def run(self) -> None:
        """Take changes of layout and train in each until the next, until told to stop."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        while (change := self.desk.wait(self.number)) is not None:
            epoch = self._change(change)
            give_back()  # what the layout before held is free now
            if epoch is None:
                continue
            trouble = self._train(epoch)
            # the groups are closed only here, where no traceback refers to their connections any more
            epoch.groups.close()
            epoch.runner.forget()
            if trouble is not None:
                self.phase = "reconfigure"  # it waits for a layout without what was lost
                self._report(trouble[0], epoch=epoch.number, step=self.step, reason=trouble[1])
        self.writer.wait(give_up=True)

    def _change(self, change: Change) -> Epoch | None:
        """Move to a new layout; None where that failed, or where this rank is idle in it."""
        self.phase, self.number = "reconfigure" if self.step else "warmup", change.epoch
        if not self._writers <= set(change.survivors):
            self.writer.wait(give_up=True)  # a part of it will never come
        self._phase("drain", time.monotonic() - change.received_s)
        outcome = self._moved(change)
        if outcome is None:
            return None
        begun = time.monotonic()
        epoch = self._adopt(outcome)
        self._phase("resume", time.monotonic() - begun)
        self._report(
            "resumed",
            epoch=change.epoch,
            step=self.step,
            working=epoch is not None,
            sent_bytes=outcome.sent_bytes,
            restored=outcome.restored,
            pause_s=time.monotonic() - change.received_s,
        )
        return epoch

    def _moved(self, change: Change) -> Outcome | None:
        """Carry a change out; whatever goes wrong is reported and leaves this rank with what it had."""
        move = Reconfiguration(
            self.spec,
            self.corpus.symbols,
            change,
            self.me,
            self.link,
            self.device,
            lambda: self._newer(change.epoch),
            self._phase,
        )
        try:
            return move.run(self.holding, plan_digest(change.plan), lambda norm: self._commit(norm, None))
        except Exception as error:
            kind, reason = _trouble(error)
            self._report(kind, epoch=change.epoch, step=self.step, reason=reason)
            return None

    def _adopt(self, outcome: Outcome) -> Epoch | None:
        for board in self._boards:
            board.clear()
        self._boards = [outcome.board]
        self.holding = outcome.holding
        state = self.holding.state
        if self.hook is not None:
            self.hook.begin_epoch(self.number)
        if state is None:
            outcome.groups.close()
            self.phase = "train"  # the run does; this rank waits to be needed
            return None
        runner = Runner(
            outcome.placement,
            self.me,
            state,
            outcome.groups,
            self.packer,
            self.desk.fault,
            Waits(self.hook),
            self.device,
        )
        return Epoch(self.number, outcome, self.me, runner, state)

    def _train(self, epoch: Epoch) -> tuple[str, str] | None:
        """Run iterations until a change, the end or trouble; returns the kind of trouble and its reason."""
        try:
            next_step = "go" if self.step < self.spec.steps else "finish"
            while next_step == "go" and not self.desk.stopped:
                next_step = self._iteration(epoch)
            if next_step == "finish":
                self._finish(epoch)
        except Exception as error:
            return _trouble(error)
        return None

    def _iteration(self, epoch: Epoch) -> str:
        """Run one iteration and commit it; returns what all ranks do next: go, change or finish."""
        state, progress = self.holding.state, self.holding.progress
        assert state is not None
        assert progress is not None
        started_s = time.monotonic()
        batches, cursor = self.packer.pack(progress.cursor, self.spec.microbatches)
        noise, random = progress.draw()
        tokens = sum(self.packer.tokens(batch) for batch in batches)
        state.flat[GRADIENT].zero_()
        self.holding.prepared = None
        record = epoch.runner.run(Iteration(progress.step + 1, batches, tokens, noise))
        squared = epoch.reduction.run()
        after = Progress(progress.step + 1, cursor, random)
        self._prepared, self.holding.prepared = Prepared(after, epoch, record, started_s), after.step
        totals = self._vote(epoch, squared, record)
        norm = math.sqrt(totals[0])
        if not math.isfinite(norm):
            raise ParallelError(f"the gradient of step {after.step} is not finite")
        self._commit(norm, totals[1])
        return self._boundary(epoch, totals)

    def _vote(self, epoch: Epoch, squared: float, record: Record) -> list[float]:
        """Phase two of the commit: a rank that adds its numbers has its gradients and agrees to apply them.

        Returns the sums over all ranks: squared gradient norm, loss, and how many have seen a change of
        layout, a wish for a checkpoint, a wish to finish. All ranks see the same sums, so they draw the same
        conclusions at the same boundary.
        """
        changed = self.desk.newest(epoch.number) is not None
        wishes = [changed, self.desk.checkpoint_asked, self.desk.finish_asked]
        totals = torch.tensor([squared, record.loss, *map(float, wishes)], dtype=torch.float64)
        with epoch.runner.waits.slot(len(epoch.runner.order), None, record):
            epoch.world.sum(totals)
        return [float(value) for value in totals]

    def _commit(self, norm: float, loss: float | None) -> None:
        """Apply the prepared step; the loss is None where a change of layout completes what a vote began."""
        done = self._prepared
        assert self.holding.state is not None
        assert done is not None
        apply_step(self.spec, self.holding.state, done.progress.step, norm)
        self.holding.progress, self.holding.prepared, self.holding.norm = done.progress, None, norm
        self._tell(done, loss, norm)

    def _boundary(self, epoch: Epoch, totals: list[float]) -> str:
        everyone = epoch.world.size
        asked = totals[3] == everyone
        every = self.spec.checkpoint_every
        if asked or (every and self.step % every == 0):
            self.desk.checkpoint_asked = False if asked else self.desk.checkpoint_asked
            self._checkpoint(epoch)
        self.phase = "train"
        if totals[2] == everyone:
            return "change"
        return "finish" if totals[4] == everyone or self.step >= self.spec.steps else "go"

    def _newer(self, number: int) -> bool:
        """Whether this rank is wanted elsewhere: by a newer change, or to stop."""
        return self.desk.stopped or self.desk.newest(number) is not None

    def _checkpoint(self, epoch: Epoch) -> None:
        self.phase = "checkpoint"
        state, progress, layout = self.holding.state, self.holding.progress, self.holding.layout
        assert state is not None
        assert progress is not None
        assert layout is not None
        label = Label(progress, epoch.number, layout)
        if label == self._written or self.writer.is_complete(label):
            return
        self._written = label

        def done(path: str, digest: str) -> None:
            if path:
                self._report("checkpoint", step=progress.step, path=path, digest=digest)
            else:
                self._report("checkpoint_failed", step=progress.step, reason=digest)

        self._writers = set(epoch.placement.working)
        self.writer.begin(label, epoch.placement, self.me, state, done)

    def _finish(self, epoch: Epoch) -> None:
        """Write the last checkpoint; the first working rank makes the model file of it."""
        self._checkpoint(epoch)
        self.writer.wait()
        if epoch.leads and not self._newer(epoch.number):
            progress = self.holding.progress
            assert progress is not None
            folder = self.writer.folder(Label(progress, epoch.number, {}))
            boxes = [Box(layer, Fraction(0), Fraction(1)) for layer in range(self.spec.layers)]
            whole = ShardedState(self.spec, self.corpus.symbols, boxes, torch.device("cpu"))
            card = {"workload": self.spec.workload, "step": progress.step, "spec": self.spec.to_json()}
            path = export_model(whole, str(folder), Path(self.spec.folder) / "model.safetensors", card)
            self._report("finished", step=progress.step, path=path)

    def _tell(self, done: Prepared, loss: float | None, norm: float) -> None:
        record = done.record
        self._report(
            "iteration",
            step=done.progress.step,
            epoch=done.epoch.number,
            loss=loss if done.epoch.runner.computes_loss else None,
            gradient_norm=norm,
            tokens=record.tokens,
            sequences=record.samples,
            started_s=done.started_s,
            ended_s=time.monotonic(),
            chunks=record.chunks,
            bubbles=record.bubbles,
        )

    def _phase(self, name: str, seconds: float) -> None:
        self._report("phase", epoch=self.number, name=name, seconds=seconds)

    def _report(self, kind: str, **fields: Any) -> None:
        self.desk.report({"kind": kind, "plan_rank": self.me, **fields})


def _trouble(error: Exception) -> tuple[str, str]:
    """The kind of event an error becomes, and its reason: a lost peer is not this rank's failure."""
    if isinstance(error, Abandoned):
        return "abandoned", str(error)
    return "failed", str(error) if isinstance(error, ParallelError) else f"{type(error).__name__}: {error}"
