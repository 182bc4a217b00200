"""What happened: event streams without gaps, the audit chain, messages on their way out."""

from typing import Any

from django.db import models


class Stream(models.Model):
    """One ordered sequence of events, for example those of a job."""

    name = models.CharField(max_length=100, primary_key=True)
    last_seq = models.BigIntegerField(default=0)
    first_seq = models.BigIntegerField(default=1, help_text="oldest sequence number still kept")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="stream_bounds", condition=models.Q(first_seq__lte=models.F("last_seq") + 1)
            )
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.last_seq}"


class Event(models.Model):
    """A fact, numbered within its stream in the transaction that made it true."""

    stream = models.ForeignKey(Stream, on_delete=models.CASCADE, related_name="events")
    seq = models.BigIntegerField()
    kind = models.CharField(max_length=60)
    at = models.DateTimeField(auto_now_add=True)
    data = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(name="event_seq_once", fields=["stream", "seq"])]
        ordering = ["stream", "seq"]

    def __str__(self) -> str:
        return f"{self.stream_id}#{self.seq} {self.kind}"


class AuditEntry(models.Model):
    """Who did what: append-only, chained by hash, refused by the database on change."""

    number = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=100)
    target = models.CharField(max_length=200)
    team_id = models.UUIDField(null=True)
    detail = models.JSONField(default=dict)
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["number"]
        indexes = [models.Index(fields=["team_id", "-number"], name="audit_by_team")]

    def __str__(self) -> str:
        return f"{self.number} {self.actor} {self.action} {self.target}"

    @property
    def content(self) -> dict[str, Any]:
        """What the entry's hash covers."""
        return {
            "number": self.number,
            "at": self.at.isoformat(),
            "actor": self.actor,
            "action": self.action,
            "target": self.target,
            "team_id": str(self.team_id) if self.team_id else None,
            "detail": self.detail,
        }


class OutboxMessage(models.Model):
    """A doorbell that must ring: written with the change, removed when the broker has it."""

    task = models.CharField(max_length=100)
    queue = models.CharField(max_length=40)
    args = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    attempts = models.PositiveIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="outbox_oldest")]

    def __str__(self) -> str:
        return f"{self.task}{self.args}"
