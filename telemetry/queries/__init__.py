"""Every read of telemetry worth a name."""

from telemetry.queries.streams import may_follow, register_job_snapshot, snapshot_of

__all__ = ["may_follow", "register_job_snapshot", "snapshot_of"]
