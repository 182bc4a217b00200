"""One trial on several ranks: the same model, the same batches, each rank's share of every one of them.

A step on all ranks together is the step that one device would make: each rank's loss counts as much as its
samples do, so that the mean of the gradients over ranks is the gradient of the whole batch.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tuning.core.errors import TuningError
from tuning.core.search import derive_seed
from tuning.core.study.actions import Member
from workers.trainer.batches import batch_statistics
from workers.trainer.orders import Stopped
from workers.trainer.ranks.group import RankGroup, guarded, parted
from workers.trainer.recipe import Recipe
from workers.trainer.solo import Lone, SoloEnsemble, random_stream


class SharedEnsemble(SoloEnsemble):
    """A single trial, trained by all ranks of a group in step.

    Raises TuningError where the model's output for a sample depends on the rest of the batch.
    """

    def __init__(self, recipe: Recipe, member: Member, data_seed: int, group: RankGroup) -> None:
        super().__init__(recipe, [member], data_seed)
        self.group, self.member = group, member
        self.parallel: nn.Module | None = None
        if member.trial in self.lones:
            model = self.lones[member.trial].model
            if found := batch_statistics(model):
                raise TuningError(f"{found} needs the whole batch on one device")
            self.parallel = guarded(
                # with a static graph, parameters that the loss does not reach need no search in every step
                lambda: DistributedDataParallel(
                    model, process_group=group.gradients, forward_sync_buffers=False, static_graph=True
                )
            )

    def train_epoch(self, epoch: int, stopped: Callable[[], bool]) -> dict[int, str]:
        """Train for an epoch; return why the trial failed, if it did, and tell the other ranks."""
        failures = super().train_epoch(epoch, stopped)
        for reason in failures.values():
            self.group.tell(reason)
        return failures

    def close(self) -> None:
        """Leave the group: the others learn it at once where they still wait for this rank."""
        self.parallel = None
        self.lones.clear()
        self.group.close()

    def _train(self, lone: Lone, epoch: int, stopped: Callable[[], bool]) -> float:
        if self.group.rank:
            lone.noise = self._own_noise(epoch)
        lone.model.train()
        total = torch.zeros((), device=self.recipe.device)
        size = self.recipe.batch_size(lone.member.config)
        with random_stream(lone, self.recipe.device):
            for inputs, targets, share in self.recipe.data.training_shares(
                self.data_seed, epoch, size, self.group.rank, self.group.size
            ):
                self.group.propose(stopped())
                total += self._shared_step(lone, inputs, targets, share)
                if self.group.agreed():
                    raise Stopped
        if lone.scheduler is not None:
            lone.scheduler.step()
        return float(self.group.sum(total))

    def _shared_step(
        self, lone: Lone, inputs: torch.Tensor, targets: torch.Tensor, share: float
    ) -> torch.Tensor:
        """Make a step; returns this rank's part of the batch's loss."""
        assert self.parallel is not None
        try:
            loss: torch.Tensor = self.recipe.workload.loss(self.parallel(inputs), targets)
            self._backward(lone, loss * (share * self.group.size))
            self._update(lone)
        except RuntimeError as error:
            if (lost := parted(error)) is not None:
                raise lost from None
            raise
        return loss.detach() * share

    def _own_noise(self, epoch: int) -> torch.Tensor:
        """The random stream of a later rank: a fresh one in every epoch, so that no file has to keep it."""
        seed = derive_seed(self.member.seed, "rank", self.group.rank, "epoch", epoch)
        return torch.Generator(self.recipe.device).manual_seed(seed).get_state()
