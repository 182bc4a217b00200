"""Jobs and what they leave behind."""

from django.db import models

from cluster.models import Team, User
from jobs.core.states import (
    PENDING,
    FaultMode,
    JobKind,
    JobState,
    ReconfigurationKind,
    ReconfigurationState,
)
from journal.core.ids import new_id


class Job(models.Model):
    """A piece of work that a person or a pipeline asked for."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=20, choices=[(k.value, k.value) for k in JobKind])
    name = models.CharField(max_length=200)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="jobs")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="jobs")
    state = models.CharField(
        max_length=20, choices=[(s.value, s.value) for s in JobState], default=JobState.QUEUED
    )
    substate = models.CharField(max_length=60, blank=True)
    reason = models.CharField(max_length=1000, blank=True)
    spec = models.JSONField()
    objective = models.JSONField(null=True, blank=True)
    version = models.PositiveIntegerField(default=1)
    attempt = models.PositiveIntegerField(default=0, help_text="how many drivers have taken it up")
    woken_at = models.DateTimeField(null=True, blank=True, help_text="when its driver was last rung for")
    cancel_asked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    summary = models.JSONField(default=dict)
    rerun_of = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="reruns"
    )

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                name="job_state_is_known", condition=models.Q(state__in=[s.value for s in JobState])
            ),
            models.CheckConstraint(
                name="job_kind_is_known", condition=models.Q(kind__in=[k.value for k in JobKind])
            ),
        ]
        indexes = [
            models.Index(fields=["team", "-created_at", "-id"], name="job_newest_of_team"),
            models.Index(fields=["state", "created_at"], name="job_by_state"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"

    @property
    def stream(self) -> str:
        """The name of this job's event stream."""
        return f"job:{self.pk}"


class Artifact(models.Model):
    """A file that a job produced; stored under its id, named only in a header."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=40)
    path = models.CharField(max_length=500, help_text="relative to the artifact directory")
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["created_at"]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class TrainingRun(models.Model):
    """A hybrid-parallel training job as it runs: how far it is, in which layout, how fast."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="training")
    steps_total = models.PositiveIntegerField()
    step = models.PositiveIntegerField(default=0, help_text="optimizer steps that are committed")
    epoch = models.PositiveIntegerField(default=0, help_text="grows with every layout and every restart")
    layout = models.JSONField(default=dict, help_text="the layout document, devices by their rank `r0`, ...")
    layout_digest = models.CharField(max_length=64, blank=True)
    devices = models.JSONField(default=list, help_text="per rank: its device's id, label and node")
    loss = models.FloatField(null=True)
    iteration_s = models.FloatField(null=True, help_text="measured: median of the latest iterations")
    expected_s = models.FloatField(null=True, help_text="estimated: this layout on healthy devices")
    checkpoint_step = models.PositiveIntegerField(null=True)
    checkpoint_path = models.CharField(max_length=500, blank=True)
    costs = models.JSONField(default=dict, help_text="measured seconds per layer and micro-batch, by kind")
    health = models.JSONField(default=list, help_text="per rank: recent slowdown, own seconds, last sign")
    facts = models.JSONField(default=dict)
    elapsed_s = models.FloatField(default=0.0)

    def __str__(self) -> str:
        return f"step {self.step} of {self.steps_total}"


class Iteration(models.Model):
    """One committed optimizer step. `ranks` keeps the raw chunks of the latest ones only."""

    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="iterations")
    step = models.PositiveIntegerField()
    epoch = models.PositiveIntegerField()
    seconds = models.FloatField(help_text="measured, from the first rank's start to the last one's end")
    expected_s = models.FloatField(null=True, help_text="estimated: this layout on healthy devices")
    loss = models.FloatField(null=True)
    tokens = models.BigIntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)
    ranks = models.JSONField(null=True, help_text="per rank: its place, its chunks and bubbles in seconds")

    class Meta:
        ordering = ["run", "step"]
        constraints = [models.UniqueConstraint(name="iteration_step_once", fields=["run", "step"])]

    def __str__(self) -> str:
        return f"step {self.step}: {self.seconds:.3f} s"


class Injection(models.Model):
    """A fault that somebody asked for, to see what comes of it: a real slowdown of a real rank."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey(TrainingRun, on_delete=models.CASCADE, related_name="injections")
    mode = models.CharField(max_length=10, choices=[(m.value, m.value) for m in FaultMode])
    rank = models.PositiveIntegerField()
    factor = models.FloatField(default=1.0)
    seconds = models.FloatField(null=True, help_text="how long; null until the job ends")
    actor = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    applied_at = models.DateTimeField(null=True, help_text="when the driver handed it to the rank")

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.CheckConstraint(
                name="injection_mode_is_known", condition=models.Q(mode__in=[m.value for m in FaultMode])
            )
        ]

    def __str__(self) -> str:
        return f"{self.mode} rank {self.rank} by {self.factor}"


class Reconfiguration(models.Model):
    """A planned change of a training job's layout, from its proposal to its outcome."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="reconfigurations")
    verdict_id = models.UUIDField(null=True, blank=True, db_index=True, help_text="what it answers to")
    kind = models.CharField(max_length=20, choices=[(k.value, k.value) for k in ReconfigurationKind])
    state = models.CharField(
        max_length=20,
        choices=[(s.value, s.value) for s in ReconfigurationState],
        default=ReconfigurationState.PROPOSED,
    )
    reason = models.CharField(max_length=1000, blank=True, help_text="why it is in its state")
    epoch = models.PositiveIntegerField(help_text="the run's epoch that it was planned for")
    before = models.JSONField(help_text="the layout document it starts from")
    plan = models.JSONField(help_text="the layout document it leads to")
    plan_digest = models.CharField(max_length=64, help_text="SHA-256 of epoch, before and plan")
    alternatives = models.JSONField(default=list, help_text="other plans, and why they lose")
    baseline_iteration_s = models.FloatField(null=True, help_text="estimated without any change")
    predicted_iteration_s = models.FloatField(help_text="estimated with the plan")
    predicted_pause_s = models.FloatField(help_text="estimated")
    moved_bytes = models.BigIntegerField(default=0)
    needs_checkpoint = models.BooleanField(default=False)
    memory = models.JSONField(default=list, help_text="per rank: bytes before, after and available")
    facts = models.JSONField(default=dict, help_text="the instance planned for, bound and gap")
    requester = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    approver = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    by_policy = models.BooleanField(default=False, help_text="approved by the job's policy, by nobody")
    comment = models.CharField(max_length=1000, blank=True)
    break_glass = models.CharField(max_length=1000, blank=True, help_text="why an own request was approved")
    expires_at = models.DateTimeField()
    outcome = models.JSONField(default=dict, help_text="measured: phases, pause, iteration time")
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        permissions = [("approve_reconfiguration", "Can approve a reconfiguration")]
        constraints = [
            models.CheckConstraint(
                name="reconfiguration_state_is_known",
                condition=models.Q(state__in=[s.value for s in ReconfigurationState]),
            ),
            models.CheckConstraint(
                name="reconfiguration_kind_is_known",
                condition=models.Q(kind__in=[k.value for k in ReconfigurationKind]),
            ),
            models.CheckConstraint(
                name="reconfiguration_approver_is_not_requester",
                condition=models.Q(approver__isnull=True)
                | ~models.Q(approver=models.F("requester"))
                | ~models.Q(break_glass="")
                | models.Q(state=ReconfigurationState.REJECTED),
            ),
            models.CheckConstraint(
                name="reconfiguration_runs_only_approved",
                condition=models.Q(approver__isnull=False)
                | models.Q(by_policy=True)
                | ~models.Q(state__in=["approved", "executing", "executed", "failed"]),
            ),
            models.UniqueConstraint(
                name="reconfiguration_pending_once",
                fields=["job"],
                condition=models.Q(state__in=sorted(s.value for s in PENDING)),
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="reconfiguration_newest"),
            models.Index(fields=["state", "expires_at"], name="reconfiguration_by_state"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} ({self.state})"
