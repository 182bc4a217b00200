"""What was observed: failure events, verdicts on devices of training jobs, burn-in tests, webhooks."""

from django.db import models

from cluster.models import Device, Team, User
from jobs.models import Job
from journal.core.ids import new_id
from telemetry.core.states import BurnInState, DeliveryState, VerdictKind, VerdictState


class FailureEvent(models.Model):
    """Something broke: an actor died, a trial raised, a device vanished."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=60)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, null=True, blank=True, related_name="failures")
    device = models.ForeignKey(
        Device, on_delete=models.SET_NULL, null=True, blank=True, related_name="failures"
    )
    at = models.DateTimeField(auto_now_add=True)
    message = models.CharField(max_length=1000)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["-at", "-id"], name="failure_newest")]

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Verdict(models.Model):
    """An incident of a training job: what is wrong, with what, on which evidence."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="verdicts")
    device = models.ForeignKey(
        Device, on_delete=models.SET_NULL, null=True, blank=True, related_name="verdicts"
    )
    kind = models.CharField(max_length=30, choices=[(k.value, k.value) for k in VerdictKind])
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in VerdictState], default=VerdictState.OPEN
    )
    subject = models.JSONField(default=dict, help_text="rank, replica, stage, node; null where none applies")
    subject_key = models.CharField(max_length=100, blank=True)
    confidence = models.FloatField()
    factor = models.FloatField(null=True, help_text="slowdown: time over healthy time")
    first_step = models.BigIntegerField(null=True)
    detected_step = models.BigIntegerField(null=True)
    evidence = models.JSONField(default=list)
    series = models.JSONField(
        default=dict, help_text="raw: own seconds per step of the subject and its peers"
    )
    reason = models.CharField(max_length=300, blank=True, help_text="why it was cleared")
    planned_at = models.DateTimeField(null=True, blank=True, help_text="when the recovery loop answered it")
    answer = models.CharField(max_length=1000, blank=True, help_text="what the recovery loop made of it")
    version = models.PositiveIntegerField(default=1)
    first_sample_at = models.DateTimeField(null=True)
    opened_at = models.DateTimeField(auto_now_add=True)
    cleared_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-opened_at", "-id"]
        constraints = [
            models.CheckConstraint(
                name="verdict_kind_is_known", condition=models.Q(kind__in=[k.value for k in VerdictKind])
            ),
            models.CheckConstraint(
                name="verdict_state_is_known", condition=models.Q(state__in=[s.value for s in VerdictState])
            ),
            models.UniqueConstraint(
                name="verdict_open_once",
                fields=["job", "kind", "subject_key"],
                condition=models.Q(state=VerdictState.OPEN),
            ),
        ]
        indexes = [models.Index(fields=["-opened_at", "-id"], name="verdict_newest")]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject_key} ({self.state})"


class BurnIn(models.Model):
    """A micro-benchmark of a suspect device, alone, against its healthy peers."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    device = models.ForeignKey(Device, on_delete=models.CASCADE, related_name="burn_ins")
    verdict = models.ForeignKey(
        Verdict, on_delete=models.SET_NULL, null=True, blank=True, related_name="burn_ins"
    )
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in BurnInState], default=BurnInState.RUNNING
    )
    factor = models.FloatField(null=True, help_text="its time over the median of healthy devices")
    detail = models.JSONField(default=dict, help_text="measured seconds of each repetition")
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [
            models.CheckConstraint(
                name="burn_in_state_is_known", condition=models.Q(state__in=[s.value for s in BurnInState])
            ),
            models.UniqueConstraint(
                name="burn_in_running_once",
                fields=["device"],
                condition=models.Q(state=BurnInState.RUNNING),
            ),
        ]

    def __str__(self) -> str:
        return f"burn-in of {self.device_id} ({self.state})"


class Webhook(models.Model):
    """Where alerts of a team are sent. Its secret is derived from the salt and stored nowhere."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=500)
    kinds = models.JSONField(help_text="event kinds that are sent")
    salt = models.CharField(max_length=64)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    seen_seq = models.BigIntegerField(help_text="up to which event of the team's stream was looked at")
    disabled_reason = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"webhook {self.pk} of {self.team_id}"


class WebhookDelivery(models.Model):
    """One message of a webhook, from its event until it is accepted or given up."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    seq = models.BigIntegerField(null=True, help_text="number of its event; null for a test")
    kind = models.CharField(max_length=60)
    key = models.CharField(max_length=300, blank=True, help_text="what it is about, to say it once")
    body = models.JSONField()
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in DeliveryState], default=DeliveryState.WAITING
    )
    repeats = models.PositiveIntegerField(default=0, help_text="how often the same was not said again")
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(help_text="when it is due, or may be taken for lost")
    status = models.PositiveIntegerField(null=True, help_text="what the receiver answered last")
    error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name_plural = "webhook deliveries"
        constraints = [
            models.CheckConstraint(
                name="delivery_state_is_known",
                condition=models.Q(state__in=[s.value for s in DeliveryState]),
            ),
            models.UniqueConstraint(name="delivery_of_an_event_once", fields=["webhook", "seq"]),
        ]
        indexes = [
            models.Index(fields=["state", "next_at"], name="delivery_due"),
            models.Index(fields=["webhook", "key", "-created_at"], name="delivery_latest_of_key"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} ({self.state})"
