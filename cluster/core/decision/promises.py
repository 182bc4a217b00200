"""Jobs whose deadline is promised: it is known how long they run at most, and it can be kept."""

from cluster.core.decision.state import JobView

# A tick and the time that others need to leave do not break a promise.
TOLERANCE_S = 60.0


def bound_s(job: JobView, now: float) -> float | None:
    """Return the most a job will still run, by its limit or by what is known of it; None where nothing is."""
    ran_s = max(0.0, now - job.started_s) if job.running and job.started_s is not None else 0.0
    if job.limit_s is not None:
        return max(0.0, job.limit_s - job.executed_s - ran_s)
    return None if job.expected_s is None else max(0.0, job.expected_s[2])


def is_promised(job: JobView, now: float) -> bool:
    """Whether a job's deadline binds the others; one that cannot be kept any more binds nobody."""
    if job.deadline_s is None:
        return False
    left_s = bound_s(job, now)
    if left_s is None:
        return False
    return job.running or now + left_s <= job.deadline_s + TOLERANCE_S
