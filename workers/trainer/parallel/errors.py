"""What can go wrong when ranks train together."""


class ParallelError(Exception):
    """Something a group of ranks was asked to do cannot be done."""


class ImpossibleRun(ParallelError):
    """A run or layout breaks a rule; the message names the field, the rule and the legal choices."""


class Abandoned(ParallelError):
    """The iteration, or the reconfiguration, lost a peer: nothing of it counts, the state is as before."""


class Refused(ParallelError):
    """The ranks do not agree (digest, checksum, step): nothing was changed."""


class CheckpointError(ParallelError):
    """A checkpoint is missing, incomplete or damaged."""
