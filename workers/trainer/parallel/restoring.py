"""Where state comes from when no living rank has it: the last complete checkpoint, else the first values."""

from workers.trainer.parallel import checkpoint
from workers.trainer.parallel.spec import RunSpec
from workers.trainer.parallel.state import Progress, ShardedState


def newest(spec: RunSpec, lost: Progress | None) -> str | None:
    """The folder all ranks go back to, None for the first values.

    A run that begins asks the specification whether to resume; one that lost state goes back in any case.
    """
    if lost is None and not spec.resume:
        return None
    return checkpoint.newest(spec.folder, spec.known_step if lost is None else None)


def restore(state: ShardedState, spec: RunSpec, folder: str | None) -> Progress:
    """Fill a state and return the progress it belongs to; CheckpointError where the folder is damaged."""
    if folder is None:
        state.fill(spec.seed)
        return Progress.first(spec.seed)
    return checkpoint.load(state, folder)
