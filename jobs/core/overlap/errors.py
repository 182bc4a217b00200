"""What can go wrong when communication is scheduled under computation."""

from jobs.core.errors import JobError


class MalformedGraph(JobError):
    """A graph breaks a rule of the format; the message names the node or field and the rule."""


class OverBudget(JobError):
    """The policy has no plan within the memory budget; `smallest_peak_bytes` is the least it can do."""

    def __init__(self, budget_bytes: float, smallest_peak_bytes: float) -> None:
        super().__init__(
            f"memory_budget: no plan of this policy fits into {budget_bytes} bytes;"
            f" the smallest peak it reaches is {smallest_peak_bytes} bytes"
        )
        self.smallest_peak_bytes = smallest_peak_bytes


class UnknownCluster(JobError):
    """A cluster is neither a known name nor a valid description; the message names the field and the rule."""


class ProgramRefused(JobError):
    """A program cannot be captured or rewritten; the message names the operator or field and the reason."""
