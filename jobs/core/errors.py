"""What can go wrong when a job is planned, laid out or run."""


class JobError(Exception):
    """Something asked of a job cannot be done."""


class IllegalMove(JobError):
    """A job cannot go to that state from where it is."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"a {old} job cannot become {new}")
        self.old = old
        self.new = new


class StaleVersion(JobError):
    """The caller decided on an older version of something than the present one."""

    def __init__(self, seen: int, current: int, thing: str = "job") -> None:
        super().__init__(f"the {thing} has moved on: version {seen} was seen, it is now at {current}")
        self.seen = seen
        self.current = current


class IllegalReconfiguration(JobError):
    """A reconfiguration cannot go to that state from where it is."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"a reconfiguration that is {old} cannot become {new}")
        self.old = old
        self.new = new


class OwnRequest(JobError):
    """Nobody approves what they asked for themselves, except by break-glass: an admin, with a reason."""

    def __init__(self) -> None:
        super().__init__(
            "whoever asks does not approve: another admin has to, or break the glass with a reason"
        )


class MayNotDecide(JobError):
    """Only an admin of the job's team decides on its plans."""

    def __init__(self) -> None:
        super().__init__("this needs the role 'admin' in the job's team")


class PlanExpired(JobError):
    """A plan was approved too late."""

    def __init__(self, at: str) -> None:
        super().__init__(f"this plan expired at {at}: what it was made for may have changed")


class JobMovedOn(JobError):
    """A plan was made for a layout in which the job no longer runs."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the job has moved on: {why}")


class InvalidSpec(JobError):
    """A job's body breaks rules; `faults` lists (JSON pointer, rule) pairs, one for each fault."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer or '/'}: {rule}" for pointer, rule in faults))
        self.faults = faults


class MalformedInstance(JobError):
    """An instance or layout breaks a rule of the format; the message names the field and the rule."""


class NoFeasiblePlan(JobError):
    """The instance is well formed but no layout satisfies it.

    `cause` is one of `microbatches`, `devices`, `heads`, `sizes`, `memory`.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class ImpossibleSchedule(JobError):
    """A pipeline schedule cannot be built, or its instructions wait for each other for ever."""
